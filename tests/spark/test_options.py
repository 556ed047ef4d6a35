"""Options: what users write becomes values, and what they get wrong becomes one sentence."""

import pytest

from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import Bound
from pyspark_topics.options import READ, SourceOptions, parse_read, parse_write

BASE = {"url": "http://127.0.0.1:4000", "subscribe": "a"}


def read(**extra: str) -> SourceOptions:
    return parse_read({**BASE, **extra}, streaming=False)


def refused(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        parse_read(options, streaming=streaming)
    return str(caught.value)


def test_defaults_of_a_batch_read() -> None:
    options = read()
    assert options.topics == ("a",)
    assert options.starting == Bound("earliest")
    assert options.ending == Bound("latest")
    assert (options.loss, options.include_meta, options.pushdown, options.direct) == (
        "rows",
        True,
        False,
        True,
    )


def test_a_stream_starts_at_the_end_unless_told_otherwise() -> None:
    assert parse_read(BASE, streaming=True).starting == Bound("latest")


def test_names_are_split_and_repeated_ones_taken_once() -> None:
    assert read(subscribe="a, b,a").topics == ("a", "b")


def test_option_names_ignore_case() -> None:
    assert read(MAXRECORDSPERPARTITION="7").max_records_per_partition == 7


def test_an_unknown_option_names_the_nearest_and_all_known_ones() -> None:
    message = refused({**BASE, "startingOffset": "earliest"})
    assert 'no option "startingoffset"' in message
    assert 'did you mean "startingOffsets"' in message
    assert all(name in message for name in READ)
    assert message.count(". ") == 0  # one sentence


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"loss": "panic"}, "rows or fail or ignore"),
        ({"includeMeta": "yes"}, "true or false"),
        ({"minPartitions": "0"}, "whole number above 0"),
        ({"minPartitions": "-2"}, "whole number above 0"),
        ({"maxRecordsPerPartition": "many"}, "whole number above 0"),
        ({"startingOffsets": "first"}, '"earliest", "latest" or JSON'),
        ({"startingOffsets": '{"a": "first"}'}, 'position of "a"'),
        ({"startingOffsets": '{"a": true}'}, 'position of "a"'),
        ({"endingOffsets": "earliest"}, '"latest" or JSON'),
        ({"startingOffsets": '{"a": {"seq": 1, "epoch": "x"}}'}, 'position of "a"'),
        ({"startingOffsets": '{"a": {"epoch": 1}}'}, 'position of "a"'),
        ({"startingTimestamp": "noon"}, "Unix milliseconds"),
        ({"startingTimestamp": "9" * 23}, "later than any record"),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, "not both"),
        ({"subscribePattern": "a.*"}, "either"),
        ({"node": "[1]"}, "JSON list of names"),
        ({"subscribe": " , "}, "names nothing"),
        ({"tag": ""}, "is empty"),
        ({"direct": "always"}, "auto or never"),
    ],
)
def test_a_wrong_value_is_explained(wrong: dict[str, str], expected: str) -> None:
    message = refused({**BASE, **wrong})
    assert expected in message
    assert next(iter(wrong)) in message


def test_a_pattern_has_to_be_one() -> None:
    assert "regular expression" in refused({"url": "http://x", "subscribePattern": "a("})


def test_the_server_and_the_topics_are_required() -> None:
    assert 'option "url" is missing' in refused({"subscribe": "a"})
    assert 'either option "subscribe"' in refused({"url": "http://x"})


def test_options_of_the_other_kind_of_read_are_refused() -> None:
    assert "for streaming reads" in refused({**BASE, "maxOffsetsPerTrigger": "5"})
    assert "for batch reads" in refused({**BASE, "endingOffsets": "latest"}, streaming=True)


def test_positions_may_be_seqs_words_kafka_numbers_or_what_a_checkpoint_holds() -> None:
    text = '{"a": 5, "b": "latest", "c": -2, "d": -1, "e": {"seq": 7, "epoch": 3}}'
    bound = read(startingOffsets=text).starting
    assert bound.seqs == {"a": 5, "e": 7}
    assert bound.epochs == {"e": 3}
    assert [bound.word_for(topic) for topic in "bcd"] == ["latest", "earliest", "latest"]


@pytest.mark.parametrize(
    "text", ["1700000000000", "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-14T23:13:20+01:00"]
)
def test_times_are_milliseconds_or_iso_in_utc(text: str) -> None:
    assert read(startingTimestamp=text).starting_ts == 1_700_000_000_000


def test_a_consumer_is_named_like_a_topic() -> None:
    assert "letters, digits" in refused({**BASE, "consumer": "a b/c"}, streaming=True)


@pytest.mark.parametrize("text", ["0", "1960-01-01", "0001-01-01T00:00:00Z"])
def test_times_before_all_records_are_the_first_of_all(text: str) -> None:
    assert read(startingTimestamp=text).starting_ts == 0


def test_nodes_are_one_name_or_a_list() -> None:
    assert read(node="east, west").nodes == ("east, west",)
    assert read(node='["east", "west"]').nodes == ("east", "west")


def test_a_write_takes_what_spark_adds_and_nothing_else() -> None:
    added = {"checkpointLocation": "/tmp/c", "queryName": "copy"}
    options = parse_write({"url": "http://x", "topic": "t", **added})
    assert options.topic == "t"
    with pytest.raises(OptionError, match="it knows: url, apiKey, patience, topic"):
        parse_write({"url": "http://x", "subscribe": "t"})


def test_a_table_that_spark_made_without_asking_is_led_to_what_works() -> None:
    """`CREATE TABLE t (data STRING) USING topics` asks nobody, and reads and writes without any option."""
    for parse in (parse_read, parse_write):
        with pytest.raises(OptionError, match=r"attach\(spark, url\) for SELECT, and df\.write\.format"):
            parse({})
