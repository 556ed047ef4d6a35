"""Sealed segments opened where they lie: the same rows as over HTTP, and none of them over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_topics import partitions
from tests.spark.server import Server
from tests.spark.wiretap import Wiretap

RECORDS = 30_000


@pytest.fixture(scope="module")
def sealed(start_server: Callable[..., Server]) -> Server:
    """A server whose topic lies in files, with deletions, a lost front, tags, nodes and meta."""
    server = start_server(TOPICS_SEGMENT_MAX_EVENTS="4000")
    server.configure("t", cap_records=RECORDS - 1000)
    for first in range(0, RECORDS, 5000):
        server.append(
            "t",
            *(
                {
                    "data": {"n": n, "text": "ü" * (n % 7)},
                    "tag": f"t{n % 11}",
                    **({"node": f"n{n % 3}"} if n % 2 else {}),
                    **({"meta": {"k": n}} if n % 5 == 0 else {}),
                }
                for n in range(first, first + 5000)
            ),
        )
    server.delete("t", match="t3")
    server.stop()
    server.start()
    server.delete("t", match="t4")  # after sealing: only flags, or not even those yet, tell
    return server


@pytest.fixture
def tap(sealed: Server) -> Iterator[Wiretap]:
    tap = Wiretap(sealed.url)
    yield tap
    tap.close()


@pytest.fixture
def read(spark: SparkSession, tap: Wiretap) -> Callable[..., DataFrame]:
    def load(**options: object) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        frame = spark.read.format("topics").option("url", tap.url).option("subscribe", "t")
        return frame.options(**texts).load()

    return load


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def test_both_paths_return_the_same_rows(tap: Wiretap, read: Callable[..., DataFrame]) -> None:
    over_http = rows(read(direct="never"))
    assert len(over_http) > RECORDS * 3 // 4
    assert sum(row[7] == "tombstone" for row in over_http) == 1
    assert rows(read()) == over_http


def test_no_record_of_a_sealed_file_crosses_the_network(
    sealed: Server, tap: Wiretap, read: Callable[..., DataFrame]
) -> None:
    manifest = sealed.ask("GET", "/v0/topics/t/segments")
    last = manifest["runs"][-1]["base"] + manifest["runs"][-1]["count"] - 1
    assert last - manifest["earliest_seq"] > RECORDS // 2
    ends = {
        "startingOffsets": json.dumps({"t": manifest["earliest_seq"] - 1}),
        "endingOffsets": json.dumps({"t": last}),
    }
    found = read(loss="fail", minPartitions=3, **ends).count()
    assert found > RECORDS // 2
    assert not [request for request in tap.requests if "/scan" in request]


def test_columns_and_times_narrow_a_direct_read(sealed: Server, read: Callable[..., DataFrame]) -> None:
    for options in ({"columns": "seq"}, {"columns": "tag,meta"}, {"columns": "ts,node", "loss": "fail"}):
        extra = {**options, "startingOffsets": json.dumps({"t": 5000})}
        assert rows(read(**extra)) == rows(read(**extra, direct="never"))
    (middle,) = sealed.ask("POST", "/v0/topics/t/diff", {"from_seq": 15_000, "limit": 1})["records"]
    condition = f"ts > timestamp_millis({middle['$ts']})"
    assert rows(read(pushdown="true").where(condition)) == rows(read(direct="never").where(condition))


def test_a_reader_that_does_not_see_the_files_reads_over_http(
    sealed: Server, tap: Wiretap, read: Callable[..., DataFrame]
) -> None:
    expected = rows(read(direct="never"))
    hidden = sealed.data_dir.rename(sealed.data_dir.with_name("elsewhere"))
    try:
        sealed.ask("GET", "/v0/topics/t")  # the server has its files open
        assert rows(read()) == expected
    finally:
        hidden.rename(sealed.data_dir)


def test_small_reads_do_not_ask_for_files(tap: Wiretap, read: Callable[..., DataFrame]) -> None:
    start = RECORDS - partitions.SMALLEST_READ // 2
    assert read(startingOffsets=json.dumps({"t": start})).count() > 0
    assert not [request for request in tap.requests if "/segments" in request]
