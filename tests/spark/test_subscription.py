"""Which topics a read is about, and where it begins and ends in them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_topics.client import Client
from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import StreamOffset, TopicView
from pyspark_topics.options import SourceOptions, parse_read
from pyspark_topics.subscription import end_of, start_of, start_of_missing, subscribed
from topics.client import Refused

VIEW = TopicView("orders", 7, 20, 5)


class Described(Client):
    """A server with topics of which nothing can be read."""

    def __init__(self, *topics: str, forbidden: str = "") -> None:
        self._topics = topics
        self._forbidden = forbidden

    def topic_names(self) -> Iterator[str]:
        return iter((*self._topics, "gone-meanwhile"))

    def topic(self, name: str) -> dict[str, Any]:
        if name == self._forbidden:
            raise Refused(403, "forbidden", "no")
        if name not in self._topics:
            raise Refused(404, "topic_not_found", "no")
        return {"topic": name, "epoch": 7, "head_seq": 20, "earliest_seq": 5}


def options(**more: object) -> SourceOptions:
    chosen = {"subscribe": "orders"} if "subscribePattern" not in more else {}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}
    return parse_read({"url": "http://x", **chosen, **texts}, streaming=False)


def test_a_topic_that_may_not_be_seen_is_not_taken_for_missing() -> None:
    with pytest.raises(Refused, match="forbidden"):
        subscribed(Described("orders", forbidden="orders"), options())


@pytest.mark.parametrize(
    ("start", "at"),
    [
        ("earliest", StreamOffset(0, 7)),
        ("latest", StreamOffset(20, 7)),
        ({"orders": 9}, StreamOffset(9, 7)),
        ({"orders": {"seq": 9, "epoch": 6}}, StreamOffset(9, 6)),
        ({"orders": -2}, StreamOffset(0, 7)),
        ({"orders": 20}, StreamOffset(20, 7)),
        ({"orders": {"seq": 90, "epoch": 6}}, StreamOffset(90, 6)),
    ],
)
def test_starts(start: object, at: StreamOffset) -> None:
    assert start_of(Described(), VIEW, options(startingOffsets=start)) == at


def test_a_place_in_a_topic_that_does_not_exist_is_refused_unless_it_is_one_of_an_earlier_life() -> None:
    for waits in ("earliest", "latest", {"later": 0}, {"later": -1}):
        assert start_of_missing("later", options(startingOffsets=waits)) == StreamOffset(0, 0)
    earlier = options(startingOffsets={"later": {"seq": 41, "epoch": 7}})
    assert start_of_missing("later", earlier) == StreamOffset(41, 7)
    with pytest.raises(OptionError, match='is 41 for topic "later", which does not exist'):
        start_of_missing("later", options(startingOffsets={"later": 41}))


def test_a_topic_that_was_left_out_is_named() -> None:
    with pytest.raises(OptionError, match='"startingOffsets" says nothing about topic "orders"'):
        start_of(Described(), VIEW, options(startingOffsets={"other": 1}))


class Timed(Described):
    """Records of 5 to 20, each at its seq in milliseconds."""

    def scan(self, topic: str, request: dict[str, Any]) -> Any:
        found = [seq for seq in range(request["from_seq"] + 1, 21) if seq >= request["since_ts"]][:1]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([("seq", pa.int64())])) as writer:
            writer.write(pa.record_batch({"seq": pa.array(found, pa.int64())}))
        return io.BytesIO(sink.getvalue().to_pybytes())


def test_times_may_be_given_by_topic() -> None:
    at = {"startingOffsetsByTimestamp": {"orders": 9}, "endingOffsetsByTimestamp": {"orders": 12}}
    assert start_of(Timed(), VIEW, options(**at)) == StreamOffset(8, 7)
    assert end_of(Timed(), VIEW, options(**at)) == StreamOffset(11, 7)
    late = {
        "startingOffsetsByTimestamp": {"orders": "1970-01-02"},
        "endingOffsetsByTimestamp": {"orders": 99},
    }
    with pytest.raises(OptionError, match='is 86400000 for topic "orders", which has no record of that time'):
        start_of(Timed(), VIEW, options(**late))
    assert end_of(Timed(), VIEW, options(**late)) == StreamOffset(20, 7)
    one_for_all = options(startingTimestamp="9000", startingOffsetsByTimestampStrategy="error")
    with pytest.raises(OptionError, match='"startingTimestamp" is 9000 for topic'):
        start_of(Timed(), VIEW, one_for_all)
    latest = options(**late, startingOffsetsByTimestampStrategy="latest")
    assert start_of(Timed(), VIEW, latest) == StreamOffset(20, 7)
    other = options(startingOffsetsByTimestamp={"other": 9})
    with pytest.raises(OptionError, match='"startingOffsetsByTimestamp" says nothing about topic "orders"'):
        start_of(Timed(), VIEW, other)


def test_a_time_in_a_topic_without_records_is_its_beginning_and_its_end() -> None:
    empty = TopicView("orders", 7, 20, 21)
    assert start_of(Described(), empty, options(startingTimestamp="2020-01-01")) == StreamOffset(0, 7)
    assert end_of(Described(), empty, options(endingTimestamp="2020-01-01")) == StreamOffset(20, 7)
