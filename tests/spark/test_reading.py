"""Sealed files under a pinned snapshot, without Spark around them: equal to diff, and safe while pinned."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_topics.client import Client
from pyspark_topics.offsets import ORIGIN, StreamOffset
from pyspark_topics.options import parse_read
from pyspark_topics.partition_reader import read_ranges
from pyspark_topics.partitions import SMALLEST_READ, ScanFilter, SealedFiles, SeqRange, TaskPartition, plan
from pyspark_topics.rows import ReadSchema
from tests.spark.histories import random_history
from tests.spark.server import Server
from tests.spark.wiretap import Wiretap

SCHEMA = ReadSchema(("seq", "tag", "data", "kind", "gap_from", "gap_to", "reason"))
SEEDS = range(12)
SinkRows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def sealed(start_server: Callable[..., Server]) -> Server:
    """Topics `seed-…` with random histories and `plain` with 1000 records, most of them in small files."""
    server = start_server(TOPICS_SEGMENT_MAX_EVENTS="20")
    for seed in SEEDS:
        random_history(server, f"seed-{seed}", random.Random(seed))
        server.append(f"seed-{seed}", *({"data": n, "tag": f"t{n % 5}"} for n in range(80)))
        server.configure(f"seed-{seed}", cap_records=(0, 70)[seed % 2])
        server.delete(f"seed-{seed}", match=f"t{seed % 5}")
    server.append("plain", *range(1000))
    server.stop()
    server.start()
    return server


@pytest.fixture
def tap(sealed: Server) -> Iterator[Wiretap]:
    tap = Wiretap(sealed.url)
    yield tap
    tap.close()


class Reader:
    """A read planned now, to be carried out later."""

    def __init__(self, server: Server, topic: str, url: str | None = None) -> None:
        self._options = parse_read({"url": url or server.url, "subscribe": topic}, streaming=False)
        self._client = Client(server.url)
        self._files = SealedFiles(self._client)
        state = server.state(topic)
        end = StreamOffset(state["head_seq"], state["epoch"])
        # Files are only asked for where many records are expected.
        weight = max(end.seq, SMALLEST_READ)
        whole = SeqRange(topic, StreamOffset(ORIGIN, end.epoch), end.seq, end.epoch, weight)
        self.tasks = plan(self._files, [whole], self._options)

    @property
    def ranges(self) -> list[SeqRange]:
        return [one for task in self.tasks for one in task.ranges]

    def release(self) -> None:
        self._files.release()

    def with_lease(self, seconds: float) -> None:
        """As if the server gave so much time, and no more."""
        shortened = [
            one
            if one.run is None
            else replace(one, run=replace(one.run, pin=replace(one.run.pin, lease_s=seconds)))
            for one in self.ranges
        ]
        self.tasks = [TaskPartition(shortened)]

    def rows(self) -> SinkRows:
        self._client.close()
        return [
            row
            for task in self.tasks
            for _, batch in read_ranges(self._options, SCHEMA, ScanFilter(), task)
            for row in batch.to_pylist()
        ]


def records(rows: SinkRows) -> list[tuple[int, str | None, str]]:
    return [(row["seq"], row["tag"], row["data"]) for row in rows if row["kind"] == "record"]


def gaps(rows: SinkRows) -> list[tuple[int, int, str]]:
    return [(row["gap_from"], row["gap_to"], row["reason"]) for row in rows if row["kind"] == "tombstone"]


def from_diff(server: Server, topic: str) -> tuple[list[tuple[int, str | None, str]], list[Any]]:
    found, lost = server.diff(topic)
    return (
        [(r["$seq"], r.get("$tag"), str(r["data"])) for r in found],
        [(gap["gap_from"], gap["gap_to"], gap["reason"]) for gap in lost],
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_sealed_files_equal_what_diff_returns(sealed: Server, seed: int) -> None:
    topic = f"seed-{seed}"
    for _ in range(3):
        reader = Reader(sealed, topic)
        assert (records(rows := reader.rows()), gaps(rows)) == from_diff(sealed, topic)
        random_history(sealed, topic, random.Random(100 + seed))  # on top of what is sealed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deletion_after_planning_shows_or_does_not_and_nothing_else_changes(
    sealed: Server, seed: int
) -> None:
    topic = f"seed-{seed}"
    before, _ = from_diff(sealed, topic)
    reader = Reader(sealed, topic)
    sealed.delete(topic, match="t1")
    after, _ = from_diff(sealed, topic)
    found = records(reader.rows())
    assert set(after) <= set(found) <= set(before)
    assert found == sorted(found)


def test_records_evicted_after_planning_are_still_in_the_files(
    sealed: Server, topic: str, tap: Wiretap
) -> None:
    reader = Reader(sealed, "plain", tap.url)
    sealed.configure("plain", cap_records=10)
    try:
        rows = reader.rows()
    finally:
        sealed.configure("plain")
    tail = [one for one in reader.ranges if one.run is None]
    assert [row["seq"] for row in rows if row["kind"] == "record"] == list(range(1, 1001))
    assert len([request for request in tap.requests if "/scan" in request]) == len(tail)


def test_a_file_that_is_gone_is_told_as_what_became_of_its_records(sealed: Server) -> None:
    sealed.append("short-lived", *range(500))
    sealed.stop()
    sealed.start()
    reader = Reader(sealed, "short-lived")
    reader.release()
    sealed.configure("short-lived", cap_records=100)
    sealed.append("short-lived", *range(100))
    paths = {one.run.path for one in reader.ranges if one.run is not None}
    assert paths
    for path in paths:  # the server does so, too, after a while
        Path(path).rename(path + ".gone")
    rows = reader.rows()
    for path in paths:  # other topics are in there as well
        Path(path + ".gone").rename(path)
    assert records(rows) == []
    assert sorted(seq for a, b, _ in gaps(rows) for seq in range(a, b + 1)) == list(range(1, 501))
    assert {reason for _, _, reason in gaps(rows)} == {"cap"}


def reader_of_files(server: Server, topic: str, url: str) -> Reader:
    """A read whose plan names sealed files: a server under load may refuse to name them."""
    for _ in range(50):
        reader = Reader(server, topic, url)
        if any(one.run is not None for one in reader.ranges):
            return reader
        time.sleep(0.1)
    raise AssertionError(f"no plan names a sealed file of {topic}")


def test_a_task_renews_its_lease_while_it_reads(sealed: Server, tap: Wiretap) -> None:
    reader = reader_of_files(sealed, "seed-0", tap.url)
    reader.with_lease(60)
    reader.rows()
    assert sum("/renew" in request for request in tap.requests) == 1  # it does not know how long it waited
    reader.with_lease(0)
    reader.rows()
    pieces = len(reader.ranges)
    assert sum("/renew" in request for request in tap.requests) > pieces


def test_a_lease_that_ran_out_is_not_asked_for_again_and_breaks_nothing(sealed: Server, tap: Wiretap) -> None:
    expected, _ = from_diff(sealed, "seed-0")
    reader = Reader(sealed, "seed-0", tap.url)
    reader.with_lease(0)
    reader.release()
    assert records(reader.rows()) == expected
    assert sum("/renew" in request for request in tap.requests) == 1
