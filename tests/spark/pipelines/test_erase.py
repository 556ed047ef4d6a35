"""`erase`: afterwards nothing of it is to be found, neither by asking nor by looking at the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines import Archive, Audit, Erase
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import write_files
from pyspark_topics.pipelines.table_schema import RECORDS
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server

SECRET = "the-secret-of-user-7"


@pytest.fixture(scope="module")
def own(start_server: Callable[..., Server]) -> Server:
    return start_server(TOPICS_SEGMENT_MAX_EVENTS="50")


@pytest.fixture
def pipelines(spark: SparkSession, own: Server, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, own, tmp_path / "state")


def fill(server: Server, topic: str, secret: str = SECRET) -> None:
    server.append(
        topic,
        *(
            {
                "data": {"n": n, "text": secret if n % 10 == 7 else "open"},
                "tag": f"user:{n % 10}",
                "meta": {"n": n},
            }
            for n in range(200)
        ),
    )


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def rows_of(folder: str) -> list[dict[str, Any]]:
    """Of every file that lies there, whether a version of the table refers to it or not."""
    files = Path(folder).glob("*.parquet")
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_nothing_is_left_of_it(own: Server, topic: str, pipelines: Pipelines, table: str) -> None:
    copies, untouched = f"{topic}.copies", f"{topic}.untouched"
    own.configure(topic)
    own.ask("PUT", f"/v0/routers/{topic}.r", {"source": topic, "dest": copies})
    own.ask("PUT", f"/v0/routers/{topic}.s", {"source": copies, "dest": f"{copies}.again"})
    fill(own, topic)
    own.append(untouched, {"data": "other", "tag": "user:8"})
    own.stop()
    own.start()
    fill(own, topic)  # some of it in files, some in the journal only
    archive = Archive(pattern=f"{topic}.*", table=table)
    pipelines.run(archive, "archive")
    orphan = next(iter(write_files(Lake(table).records.to_pyarrow_table().to_batches(), location(table))))
    assert SECRET.encode() in bytes_of(own.data_dir)
    assert any(SECRET in row["data"] for row in rows_of(table))
    gaps = bytes_of(Path(f"{table}_gaps"))

    facts = pipelines.run(Erase(tag="user:7", topics=[topic], tables=[table]), "erase")

    assert SECRET.encode() not in bytes_of(own.data_dir)
    assert b"user:7" not in bytes_of(own.data_dir)
    assert not [row for row in rows_of(table) if SECRET in row["data"] or row["tag"] == "user:7"]
    assert not (Path(table) / orphan.path).exists()
    assert bytes_of(Path(f"{table}_gaps")) == gaps
    assert facts["topics"] == {topic: 40, copies: 40, f"{copies}.again": 40}
    (erased,) = facts["tables"]
    assert erased["records"] == 120
    assert len(Lake(table).records.to_pyarrow_table()) == 3 * 360 + 1
    for name in (topic, copies):
        assert len(own.diff(name)[0]) == 360
        assert {record["$tag"] for record in own.diff(name)[0]}.isdisjoint({"user:7"})
    # What was erased counts as deleted; the archive goes on as if nothing had happened.
    own.append(topic, 1)
    pipelines.run(archive, "archive")
    pipelines.run(Audit(table=table), "audit")


def test_the_receipt_says_what_was_done_and_what_cannot_be(
    own: Server, topic: str, pipelines: Pipelines
) -> None:
    fill(own, topic, f"secret-of-{topic}")
    own.ask(
        "PUT", f"/v0/routers/{topic}.r", {"source": topic, "dest": f"{topic}.bare", "preserve_tag": False}
    )
    outcome = pipelines.once(Erase(tag="user:7*", topics=[topic]), "erase")
    assert outcome.ok
    receipt = json.loads(Path(outcome.facts["receipt"]).read_text())
    assert {**receipt, "receipt": outcome.facts["receipt"]} == outcome.facts
    assert receipt["topics"][topic] == 20
    assert receipt["purge"]["journal_bytes"] > 0
    assert receipt["out_of_reach"][0] == (f'router "{topic}.r" copies {topic} to {topic}.bare without tags')
    assert any("backups" in one for one in receipt["out_of_reach"])
    assert any(f"topic {topic}" in line and "20" in line for line in outcome.lines)
    # Again: there is nothing left to do, and that is fine.
    assert pipelines.run(Erase(tag="user:7*", topics=[topic]), "erase")["topics"][topic] == 0


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ({}, None),
        ({"partition_by": ["topic", "day"], "cluster_by": ["topic"]}, None),
        (
            {"schema": "text STRING, n INT", "partition_by": ["text"], "cluster_by": ["n"]},
            "values of n, text",
        ),
        (
            {"schema": "text STRING"},
            "the smallest and largest values of any column that it was ever clustered by",
        ),
    ],
)
def test_the_receipt_says_what_the_log_of_a_table_keeps(
    own: Server, topic: str, pipelines: Pipelines, table: str, columns: dict[str, Any], kept: str | None
) -> None:
    """Only where it may keep something of what was in records."""
    own.append(topic, {"data": {"n": 1, "text": SECRET}, "tag": "user:7"}, {"data": {"n": 2, "text": "open"}})
    pipelines.run(Archive(topics=[topic], table=table, **columns), "archive")
    facts = pipelines.run(Erase(tag="user:7", topics=[topic], tables=[table]), "erase")
    assert facts["tables"][0]["records"] == 1
    assert (SECRET.encode() in bytes_of(Path(table) / "_delta_log")) == (
        "partition_by" in columns and bool(kept)
    )
    told = [one for one in facts["out_of_reach"] if one.startswith("the log of")]
    rest = "also of files that were removed, until a commit tidies it after its retention (30 days)"
    assert told == ([f"the log of {table}, which keeps {kept}, {rest}"] if kept else [])


def test_the_receipt_does_not_forget_the_log_if_an_erasure_is_run_again(
    own: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    """The first may have been interrupted before its receipt; no file is left that tells its columns."""
    own.append(topic, {"data": {"text": SECRET}, "tag": "user:7"})
    pipelines.run(Archive(topics=[topic], table=table, schema="text STRING", cluster_by=["text"]), "archive")
    erase = Erase(tag="user:7", topics=[topic], tables=[table])
    assert pipelines.run(erase, "erase")["tables"][0]["columns_in_log"] == ["text"]
    again = pipelines.run(erase, "erase")
    assert SECRET.encode() in bytes_of(Path(table) / "_delta_log")
    assert any(one.startswith(f"the log of {table}, which keeps") for one in again["out_of_reach"])


def test_an_archive_that_had_read_such_records_cannot_bring_them_back(
    own: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    """It is killed, or rather made to wait, between reading and committing."""
    fill(own, topic, f"secret-of-{topic}")
    archiving = Lake(table)
    own_rows = [
        {"topic": topic, "epoch": own.state(topic)["epoch"], "seq": n, "tag": "user:7"} for n in (1, 2)
    ]

    in_flight = list(write_files(pa.Table.from_pylist(own_rows, RECORDS).to_batches(), location(table)))
    pipelines.run(Erase(tag="user:7", topics=[topic], tables=[table]), "erase")
    with pytest.raises(PipelineFailed, match="at the same time"):
        archiving.commit(in_flight, {}, {topic: StreamOffset(2, own.state(topic)["epoch"])}, [])
    assert rows_of(table) == []
    pipelines.run(Archive(topics=[topic], table=table), "archive")
    assert len(rows_of(table)) == 180


def test_a_topic_that_is_in_the_lake_only(own: Server, topic: str, pipelines: Pipelines, table: str) -> None:
    fill(own, topic, f"secret-of-{topic}")
    pipelines.run(Archive(topics=[topic], table=table), "archive")
    own.drop(topic)
    by_name = Erase(tag="user:7", topics=[topic], tables=[table])
    assert pipelines.run(by_name, "erase")["tables"][0]["records"] == 20
    by_pattern = Erase(tag="user:8", pattern=f"{topic}.*", tables=[table])
    assert pipelines.run(by_pattern, "erase")["tables"][0]["records"] == 20
    elsewhere = Erase(tag="user:1", pattern=f"not-{topic}", tables=[table])
    assert pipelines.run(elsewhere, "erase")["tables"][0]["records"] == 0
    assert {row["tag"] for row in rows_of(table)} == {f"user:{n}" for n in (0, 1, 2, 3, 4, 5, 6, 9)}


def test_files_that_delta_rs_wrote_hold_nothing_of_it_either(
    own: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    fill(own, topic, f"secret-of-{topic}")
    pipelines.run(Archive(topics=[topic], table=table), "archive")
    DeltaTable(table).update(updates={"node": "'somebody'"}, predicate="seq = 5")
    erase = Erase(tag="user:7", topics=[topic], tables=[table])
    assert pipelines.run(erase, "erase")["tables"][0]["records"] == 20
    assert len(rows_of(table)) == 180
    assert {row["tag"] for row in rows_of(table)} == {f"user:{n}" for n in range(10) if n != 7}


def test_mistakes_are_explained(pipelines: Pipelines, table: str) -> None:
    assert "there is no table at" in pipelines.failure(Erase(tag="a", tables=[table]))
    assert 'there is no topic "absent"' in pipelines.failure(Erase(tag="a", topics=["absent"]))
    for wrong in ("", "*", " "):
        with pytest.raises(ValueError, match="whose records"):
            Erase(tag=wrong)
    with pytest.raises(ValueError, match="not both"):
        Erase(tag="a", topics=["t"], pattern="t.*")
