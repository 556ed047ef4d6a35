"""`spark.readStream.format("topics")`: nothing lost, nothing twice, loss announced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_topics.micro_batch_stream import StreamReader, publish_end
from pyspark_topics.options import parse_read
from pyspark_topics.rows import spark_schema
from tests.spark.server import Server
from tests.spark.streams import Stream, failure, gaps, seqs


def test_a_query_goes_on_where_it_stopped(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, *range(5))
    assert seqs(stream.run(topic)) == [1, 2, 3, 4, 5]
    assert stream.run(topic) == []
    server.append(topic, 5, 6)
    assert seqs(stream.run(topic)) == [6, 7]


@pytest.mark.parametrize(("start", "first_batch"), [("earliest", ["0"]), ("latest", [])])
def test_the_beginning_of_a_query_stays_where_spark_saw_it_first(
    server: Server, topic: str, start: str, first_batch: list[str]
) -> None:
    name = f"{topic}.later"
    given = {"url": server.url, "subscribe": f"{topic},{name}", "startingOffsets": start}
    options = parse_read(given, streaming=True)
    server.append(topic, 0)
    stream = StreamReader(options, spark_schema(options))
    try:
        before = stream.initialOffset()
        planned = stream.latestOffset(before, stream.getDefaultReadLimit())
        server.append(topic, 1)
        server.append(name, 2)
        assert stream.initialOffset() == before
        read = [
            [
                row
                for task in stream.partitions(begin, end)
                for rows in stream.read(task)
                for row in rows.to_pylist()
            ]
            for begin, end in [
                (before, planned),
                (planned, stream.latestOffset(planned, stream.getDefaultReadLimit())),
            ]
        ]
    finally:
        stream.stop()
    assert [[row["data"] for row in rows] for rows in read] == [first_batch, ["1", "2"]]


def test_available_now_reads_in_limited_batches_and_stops_at_its_target(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, *range(25))
    stream.run(topic, maxOffsetsPerTrigger=10)
    assert [len(batch) for batch in stream.batches if batch] == [10, 10, 5]
    assert seqs(stream.rows) == list(range(1, 26))


def test_a_running_query_follows_and_shows_its_lag(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, *range(3))
    query = stream.start(topic, once=False, consumer="lab")
    query.processAllAvailable()
    server.append(topic, *range(4))
    query.processAllAvailable()
    assert seqs(stream.rows) == list(range(1, 8))
    source = next(p for p in reversed(query.recentProgress) if p.numInputRows).sources[0]
    assert json.loads(source.latestOffset)[topic]["seq"] == 7
    assert json.loads(source.endOffset)[topic]["seq"] == 7
    # It is idle: nothing waits, and the server knows.
    assert server.ask("GET", f"/v0/topics/{topic}/cursors/lab")["lag"] == 0
    query.stop()
    assert publish_end(query, server.url, "other") == 0
    assert server.ask("GET", f"/v0/topics/{topic}/cursors/other")["lag"] == 0


def test_the_cursor_of_a_query_that_has_finished_is_where_it_ended(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, *range(5))
    stream.run(topic, consumer="lab", maxOffsetsPerTrigger=3)
    assert server.ask("GET", f"/v0/topics/{topic}/cursors/lab")["seq"] == 5


def test_a_start_above_the_head_names_both_numbers(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, 1, 2)
    message = failure(lambda: stream.run(topic, startingOffsets=json.dumps({topic: 90})))
    assert f'"startingOffsets" is 90 for topic "{topic}", whose head is 2' in message


def test_a_micro_batch_waits_for_enough_records_or_for_its_time(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, 1)
    query = stream.start(topic, once=False, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    query.processAllAvailable()
    assert stream.rows == []
    server.append(topic, 2, 3)
    query.processAllAvailable()
    assert seqs(stream.rows) == [1, 2, 3]
    query.stop()
    server.append(topic, 4)
    query = stream.start(topic, once=False, minOffsetsPerTrigger=3, maxTriggerDelay="1ms")
    query.processAllAvailable()
    query.stop()
    server.append(topic, 5)
    # A run that stops at what is there waits for nothing.
    stream.run(topic, minOffsetsPerTrigger=3)
    assert seqs(stream.rows) == [1, 2, 3, 4, 5]


def test_a_stream_starts_at_the_end_by_default_or_at_a_time(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, 1, 2)
    assert stream.run(topic, startingOffsets="latest") == []
    server.append(topic, 3)
    assert seqs(stream.run(topic)) == [3]


def test_what_was_lost_meanwhile_arrives_as_a_row(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, *range(3))
    stream.run(topic)
    server.configure(topic, cap_records=2)
    server.append(topic, *range(4))
    rows = stream.run(topic)
    assert [row.kind for row in rows] == ["tombstone", "record", "record"]
    assert gaps(rows) == [(4, 5, "cap")]
    assert seqs(rows) == [6, 7]


def test_loss_fails_the_query_and_the_same_checkpoint_goes_on_with_rows(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, *range(3))
    stream.run(topic, loss="fail")
    server.configure(topic, cap_records=1)
    server.append(topic, *range(3))
    message = failure(lambda: stream.run(topic, loss="fail"))
    assert "lost seqs 4 to 5 (cap)" in message
    assert 'loss = "rows"' in message
    rows = stream.run(topic, loss="rows")
    assert (gaps(rows), seqs(rows)) == ([(4, 5, "cap")], [6])


def test_a_recreated_topic_is_read_from_its_beginning_and_announced(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, *range(3))
    stream.run(topic)
    server.drop(topic)
    server.append(topic, *range(5))  # its head has passed the old position
    rows = stream.run(topic)
    assert [row.reason for row in rows] == ["recreated", None, None, None, None, None]
    assert seqs(rows) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost", [0, 2])
def test_what_a_reader_missed_of_an_earlier_life_is_said_where_it_was_behind(
    server: Server, topic: str, stream: Stream, lost: int
) -> None:
    server.append(topic, *range(10))
    assert seqs(stream.run(topic, maxOffsetsPerTrigger=4)) == list(range(1, 11))
    # As after a stop in the middle: the first batch is done, the others are not planned.
    for folder in ("commits", "offsets"):
        for name in ("1", "2"):
            (stream.checkpoint / folder / name).unlink()
            (stream.checkpoint / folder / f".{name}.crc").unlink(missing_ok=True)
    server.drop(topic)
    server.append(topic, *range(3))
    server.configure(topic, cap_records=3 - lost)
    rows = stream.run(topic)
    assert gaps(rows) == [(5, 10, "recreated"), *([(1, lost, "recreated")] if lost else [])]
    assert seqs(rows) == list(range(lost + 1, 4))
    assert stream.run(topic) == []


def test_a_deleted_topic_is_waited_for(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, *range(3))
    stream.run(topic)
    server.drop(topic)
    assert stream.run(topic) == []
    server.append(topic, 0)
    rows = stream.run(topic)
    assert ([row.reason for row in rows], seqs(rows)) == (["recreated", None], [1])


def test_a_topic_that_does_not_exist_yet_is_waited_for(server: Server, topic: str, stream: Stream) -> None:
    assert stream.run(topic, startingOffsets="latest") == []
    server.append(topic, 1, 2)
    rows = stream.run(topic)
    assert (gaps(rows), seqs(rows)) == ([], [1, 2])


def test_a_range_lost_between_planning_and_reading_is_reported(
    server: Server, topic: str, stream: Stream
) -> None:
    """The plan is in the checkpoint; what it is about goes before the tasks run."""
    server.append(topic, *range(6))
    assert seqs(stream.run(topic)) == [1, 2, 3, 4, 5, 6]
    # As after a crash: the batch is planned, and neither committed nor read.
    for commit in (stream.checkpoint / "commits").iterdir():
        commit.unlink()
    server.configure(topic, cap_records=2)
    server.append(topic, *range(2))
    rows = stream.run(topic)
    assert gaps(rows) == [(1, 6, "cap")]
    assert seqs(rows) == [7, 8]


def test_a_planned_batch_of_a_topic_that_was_recreated_is_reported_as_gone(
    server: Server, topic: str, stream: Stream
) -> None:
    server.append(topic, *range(6))
    stream.run(topic)
    for commit in (stream.checkpoint / "commits").iterdir():
        commit.unlink()
    server.drop(topic)
    server.append(topic, *range(8))
    rows = stream.run(topic)
    assert gaps(rows)[0] == (1, 6, "recreated")
    assert gaps(rows)[1][2] == "recreated"
    assert seqs(rows) == list(range(1, 9))


def test_a_checkpoint_we_did_not_write_is_refused(server: Server, topic: str, stream: Stream) -> None:
    server.append(topic, 1)
    stream.run(topic)
    offsets = stream.checkpoint / "offsets" / "0"
    head, metadata, _ = offsets.read_text().split("\n")
    offsets.write_text("\n".join([head, metadata, json.dumps({topic: 7})]))
    for crc in (stream.checkpoint / "offsets").glob(".*.crc"):
        crc.unlink()
    server.append(topic, 2)
    assert "start the query with a new checkpointLocation" in failure(lambda: stream.run(topic))


def test_a_server_that_restarts_is_waited_for(
    spark: SparkSession, start_server: Callable[..., Server], topic: str, tmp_path: Path
) -> None:
    own = start_server()
    stream = Stream(spark, own.url, tmp_path)
    own.append(topic, *range(3))
    query = stream.start(topic, once=False)
    query.processAllAvailable()
    own.kill()
    own.start()
    own.append(topic, *range(2))
    query.processAllAvailable()
    query.stop()
    assert seqs(stream.rows) == [1, 2, 3, 4, 5]
