"""One range over HTTP, without Spark around it: complete, in order, and honest about what is gone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pyspark_topics.client import Client
from pyspark_topics.loss import LossPolicy
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.partition_reader import ScanReader
from pyspark_topics.partitions import ScanFilter, SeqRange
from pyspark_topics.rows import ReadSchema
from tests.spark.histories import random_history
from tests.spark.server import Server
from tests.spark.wiretap import Wiretap
from topics.client import Unreachable

SCHEMA = ReadSchema(("seq", "tag", "data", "kind", "gap_from", "gap_to", "reason"))
SinkRows = list[dict[str, Any]]


def batches(
    url: str, topic: str, start: StreamOffset, end: StreamOffset, **extra: Any
) -> Iterator[pa.RecordBatch]:
    with Client(url, **extra) as client:
        reader = ScanReader(client, SCHEMA, LossPolicy("rows", SCHEMA), ScanFilter())
        yield from reader.read(SeqRange(topic, start, end.seq, end.epoch))


def rows(url: str, topic: str, start: StreamOffset, end: StreamOffset, **extra: Any) -> SinkRows:
    return [row for batch in batches(url, topic, start, end, **extra) for row in batch.to_pylist()]


def whole(server: Server, topic: str) -> tuple[StreamOffset, StreamOffset]:
    state = server.state(topic)
    return StreamOffset(0, state["epoch"]), StreamOffset(state["head_seq"], state["epoch"])


def seqs(found: SinkRows) -> list[int]:
    return [row["seq"] for row in found if row["kind"] == "record"]


def gaps(found: SinkRows) -> list[tuple[int, int, str]]:
    return [(row["gap_from"], row["gap_to"], row["reason"]) for row in found if row["kind"] == "tombstone"]


@pytest.fixture(scope="module")
def large(server: Server) -> str:
    """Larger than what fits into the buffers between server and client."""
    server.fill("large", 200_000)
    return "large"


@pytest.fixture
def tap(server: Server) -> Iterator[Wiretap]:
    tap = Wiretap(server.url)
    yield tap
    tap.close()


def test_a_read_that_breaks_off_is_taken_up_where_it_was(server: Server, large: str, tap: Wiretap) -> None:
    tap.cuts = [1_000_000, 100, 500_000]
    assert seqs(rows(tap.url, large, *whole(server, large))) == list(range(1, 200_001))
    assert not tap.cuts
    assert sum("/scan" in request for request in tap.requests) >= 4


def test_one_that_breaks_off_for_ever_is_given_up(server: Server, large: str, tap: Wiretap) -> None:
    tap.cuts = [200] * 1000
    with pytest.raises(Unreachable):
        rows(tap.url, large, *whole(server, large), patience_s=0.5)


LONG = 40_000


def interrupted(server: Server, topic: str, interruption: Callable[[], None]) -> SinkRows:
    """The rows of a read in the middle of which something happens: far more than any buffer takes."""
    for _ in range(0, LONG, 5000):
        server.append(topic, *["x" * 1000] * 5000)
    stream = batches(server.url, topic, *whole(server, topic))
    found = next(stream).to_pylist()
    interruption()
    return found + [row for batch in stream for row in batch.to_pylist()]


def test_records_evicted_in_the_middle_of_a_read_are_announced(server: Server, topic: str) -> None:
    found = interrupted(server, topic, lambda: server.configure(topic, cap_records=10))
    (gap,) = gaps(found)
    assert gap[2] == "cap"
    assert gap[1] == LONG - 10
    assert seqs(found) == [*range(1, gap[0]), *range(LONG - 9, LONG + 1)]


def test_a_topic_deleted_in_the_middle_of_a_read_is_announced(server: Server, topic: str) -> None:
    found = interrupted(server, topic, lambda: server.drop(topic))
    (gap,) = gaps(found)
    assert gap[1:] == (LONG, "topic_deleted")
    assert seqs(found) == list(range(1, gap[0]))


def test_a_topic_recreated_in_the_middle_of_a_read_is_not_mixed_with_its_successor(
    server: Server, topic: str
) -> None:
    def recreate() -> None:
        server.drop(topic)
        server.fill(topic, 1000)

    found = interrupted(server, topic, recreate)
    (gap,) = gaps(found)
    assert gap[1:] == (LONG, "recreated")
    assert seqs(found) == list(range(1, gap[0]))


def test_a_server_killed_in_the_middle_of_a_read_is_waited_for(
    start_server: Callable[..., Server], topic: str
) -> None:
    server = start_server()

    def restart() -> None:
        server.kill()
        server.start()

    found = interrupted(server, topic, restart)
    assert gaps(found) == []
    assert seqs(found) == list(range(1, LONG + 1))


@pytest.mark.parametrize("seed", range(12))
def test_rows_equal_what_diff_returns_however_the_range_is_cut(server: Server, topic: str, seed: int) -> None:
    dice = random.Random(seed)
    random_history(server, topic, dice)
    start, end = whole(server, topic)
    records, lost = server.diff(topic)
    found = rows(server.url, topic, start, end)
    expected = [(r["$seq"], r.get("$tag"), str(r["data"])) for r in records]
    assert [(r["seq"], r["tag"], r["data"]) for r in found if r["kind"] == "record"] == expected
    assert gaps(found) == [(gap["gap_from"], gap["gap_to"], gap["reason"]) for gap in lost]
    cuts = sorted({0, end.seq, *(dice.randrange(end.seq + 1) for _ in range(4))})
    pieces = [
        rows(server.url, topic, StreamOffset(a, end.epoch), StreamOffset(b, end.epoch))
        for a, b in pairwise(cuts)
    ]
    joined = [row for piece in pieces for row in piece]
    assert [(r["seq"], r["tag"], r["data"]) for r in joined if r["kind"] == "record"] == expected
    # A gap reaches over what was deleted behind it; cut, it may end with the last seq that was lost.
    announced = {seq for a, b, _ in gaps(joined) for seq in range(a, b + 1)}
    assert announced <= {seq for gap in lost for seq in range(gap["gap_from"], gap["gap_to"] + 1)}
    line = server.ask("GET", f"/v0/topics/{topic}/segments")["loss_line"]
    assert set(range(1, line)) <= announced
