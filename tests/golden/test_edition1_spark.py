"""Lake, checkpoints and notes of the first edition: whatever read and wrote then goes on today, exactly once.

All of edition1/spark is of one moment: three orders, and some records of another topic, had been written that
nobody had read yet. See make.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_topics.pipelines.declaration import read_declaration
from tests.golden.edition1.make import WORK, AheadServer, order
from tests.golden.edition1.reading import EDITION, copied, kept, seen
from tests.spark.pipelines.running import Pipelines
from tests.support import ServerProcess

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)

# Of `orders` all records were read up to here, and there are more up to there.
READ, HEAD = 10, 13
GAPS = [
    (topic, epoch, *gap, "cap") for gap in ((1, 2), (6, 7)) for topic, epoch in (("brief", 2), ("recent", 1))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, and the current folder: the declaration and the notes of a replay have relative paths."""
    for name in ("lake", "state", "checkpoints", "exports"):
        shutil.copytree(EDITION / "spark" / name, tmp_path / name)
    shutil.copy(EDITION / "spark" / "pipelines.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    """The same topics with the same epochs, at another address."""
    server = copied("spark", folder).start()
    yield server
    server.stop()


@pytest.fixture
def run(spark: SparkSession, server: ServerProcess, folder: Path) -> Callable[[str], dict[str, Any]]:
    """A declared pipeline, up to the heads of now."""

    def once(name: str) -> dict[str, Any]:
        declared = read_declaration(folder / "pipelines.toml").pipelines[name]
        return Pipelines(spark, server, folder / "state").run(declared, name)  # type: ignore[arg-type]

    return once


def records(server: ServerProcess, topic: str, from_seq: int = 0) -> list[Any]:
    body = {"from_seq": from_seq, "limit": 1000, "include_tags": True}
    found: list[Any] = server.post(f"/v0/topics/{topic}/diff", body)["records"]
    return found


def forget_last_batch(checkpoint: Path) -> None:
    """As if the driver had been killed when the server had the batch, and Spark had not noted that."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()


# --- the lake -----------------------------------------------------------------------------------------------


def archived(folder: Path, spark: SparkSession) -> list[Row]:
    frame = spark.read.parquet(*DeltaTable(str(folder / "lake" / "shop")).file_uris())
    return frame.orderBy("topic", "epoch", "seq").collect()


def gaps(folder: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(folder / "lake" / "shop_gaps"))
    query = "select topic, epoch, gap_from, gap_to, reason from gaps order by gap_from, topic"
    rows = pa.table(QueryBuilder().register("gaps", table).execute(query)).to_pylist()
    return [tuple(row.values()) for row in rows]


def as_archived(topic: str, epoch: int, n: int) -> tuple[Any, ...]:
    record = order(n)
    meta = json.dumps(record["meta"], separators=(",", ":")) if "meta" in record else None
    data = json.dumps(record["data"], separators=(",", ":"))
    return (topic, epoch, n, record.get("node"), record.get("tag"), data, meta)


def test_the_lake_is_read(folder: Path, spark: SparkSession) -> None:
    rows = archived(folder, spark)
    found = [(row.topic, row.epoch, row.seq, row.node, row.tag, row.data, row.meta) for row in rows]
    assert found == [
        *(as_archived("brief", 2, n) for n in (3, 4, 5, 8, 9, 10)),
        *(as_archived("orders", 3, n) for n in range(1, READ + 1)),
        *(as_archived("recent", 1, n) for n in (3, 4, 5, 8, 9, 10)),
    ]
    assert all(row.ts.year >= 2026 for row in rows)
    assert gaps(folder) == GAPS


def test_the_archive_goes_on(
    folder: Path, spark: SparkSession, run: Callable[[str], dict[str, Any]], server: ServerProcess
) -> None:
    before = archived(folder, spark)
    assert run("lake")["records"] == 6
    after = archived(folder, spark)
    assert [row for row in after if row in before] == before
    assert [(row.topic, row.epoch, row.seq) for row in after if row not in before] == [
        *(("brief", 2, seq) for seq in (13, 14, 15)),
        *(("orders", 3, seq) for seq in (11, 12, 13)),
    ]
    assert [row.ts.timestamp() * 1000 for row in after if row.topic == "orders"] == [
        record["$ts"] for record in records(server, "orders")
    ]
    assert gaps(folder) == [*GAPS, ("brief", 2, 11, 12, "cap")]
    assert run("lake")["records"] == 0


def test_a_replay_goes_on(run: Callable[[str], dict[str, Any]], server: ServerProcess, folder: Path) -> None:
    """It was told to end after the third record, and its range was settled when there were ten."""
    declaration = folder / "pipelines.toml"
    declaration.write_text(declaration.read_text().replace("rate = 1\n", "rate = 0\n"))
    assert len(records(server, "orders-again")) == 3
    run("again")
    assert [r["data"] for r in records(server, "orders-again")] == [order(n)["data"] for n in range(1, 11)]
    run("again")
    assert len(records(server, "orders-again")) == 10


def test_a_load_knows_its_files(
    run: Callable[[str], dict[str, Any]], server: ServerProcess, folder: Path
) -> None:
    """They are known by absolute path and time, so the copy has to pretend that nothing was moved."""
    (notes,) = (folder / "state" / "history").iterdir()
    notes.write_text(notes.read_text().replace(str(WORK), str(folder)))
    files = json.loads(notes.read_text())["about"]["files"]
    for name, (_, modified_ns) in files.items():
        os.utime(name, ns=(modified_ns, modified_ns))
    assert list(files) == [str(folder / "exports" / "a.csv")]
    assert run("history")["files"] == 0
    (folder / "exports" / "b.csv").write_text("sku,qty\nC,3\n")
    assert run("history")["files"] == 1
    data = [record["data"] for record in records(server, "history")]
    assert data == [{"sku": sku, "qty": n} for n, sku in enumerate("ABC", 1)]


# --- streams ------------------------------------------------------------------------------------------------


def test_a_stream_goes_on_behind_its_checkpoint(
    folder: Path, spark: SparkSession, server: ServerProcess
) -> None:
    found: list[Row] = []

    def take(frame: DataFrame, _batch: int) -> None:
        found.extend(frame.collect())

    frame = spark.readStream.format("topics").options(url=server.url, subscribe="orders").load()
    writer = frame.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / "read"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert [(row.kind, row.seq) for row in found] == [("record", n) for n in range(READ + 1, HEAD + 1)]
    assert [json.loads(row.data) for row in found] == [order(n)["data"] for n in range(READ + 1, HEAD + 1)]


@pytest.mark.parametrize("prefixes", [None, "orders"])
def test_a_copy_repeats_its_last_batch_and_goes_on(
    folder: Path, spark: SparkSession, server: ServerProcess, prefixes: str | None
) -> None:
    """The server remembers under which id and number the batch was committed, and what was in it.

    Also when the key that goes on is one with prefixes: the commit is from a time when none had an owner.
    """
    with_key = {} if prefixes is None else {"apiKey": "limited"}
    checkpoint = folder / "checkpoints" / "copy"
    forget_last_batch(checkpoint)
    assert server.get("/v0/topics/orders/cursors/copy")["epoch"] == 3
    before = records(server, "orders-copy")
    assert len(before) == READ
    if prefixes is not None:
        server.stop()
        server.start(TOPICS_API_KEYS=f"all,limited:rw:{prefixes}")
    options = {"url": server.url, "subscribe": "orders", "consumer": "copy", **with_key}
    frame = spark.readStream.format("topics").options(**options).load()
    frame = frame.where("kind = 'record'").select("data", "tag", "meta")
    writer = frame.writeStream.format("topics").options(url=server.url, topic="orders-copy", **with_key)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [progress.numInputRows for progress in query.recentProgress] == [4, 3]
    if prefixes is not None:
        server.stop()
        server.start(TOPICS_API_KEYS="")
    after = records(server, "orders-copy")
    assert after[:READ] == before
    assert [record["data"] for record in after[READ:]] == [order(n)["data"] for n in (11, 12, 13)]


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_a_route_goes_on_with_its_state(
    noted: bool, folder: Path, run: Callable[[str], dict[str, Any]], server: ServerProcess
) -> None:
    if not noted:
        forget_last_batch(folder / "state" / "sales" / "checkpoint")
    before = records(server, "sales")
    losses = [record["data"] for record in before if record.get("$tag") == "tombstone"]
    assert [(loss["topic"], loss["gap_from"], loss["gap_to"]) for loss in losses] == [
        ("recent", 1, 2),
        ("recent", 6, 7),
    ]
    run("sales")
    after = records(server, "sales")
    assert after[: len(before)] == before
    # `recent` lost 1, 2, 6 and 7 before anybody read them.
    counted = [order(n)["data"] for n in (*range(1, HEAD + 1), 3, 4, 5, 8, 9, 10)]
    assert sorted((record["data"] for record in after[len(before) :]), key=itemgetter("sku")) == [
        {
            "sku": sku,
            "qty": sum(data["qty"] for data in counted if data["sku"] == sku),
            "orders": sum(data["sku"] == sku for data in counted),
        }
        for sku in "ABC"
    ]


def test_a_window_that_was_open_is_closed(
    run: Callable[[str], dict[str, Any]], server: ServerProcess
) -> None:
    """By a record that comes decades later: from a server whose clock says so."""
    server.request("GET", "/v0/topics/hours").refused(404, "topic_not_found")  # nothing was complete
    server.stop()
    server.command = AheadServer.command
    server.start()
    server.post("/v0/topics/orders", {"records": [order(14)]})
    run("hours")
    found = [record["data"] for record in records(server, "hours")]
    orders = [order(n)["data"] for n in range(1, HEAD + 1)]
    sums = {sku: sum(row["qty"] for row in found if row["sku"] == sku) for sku in "ABC"}
    assert sums == {sku: sum(data["qty"] for data in orders if data["sku"] == sku) for sku in "ABC"}


# --- data directories ---------------------------------------------------------------------------------------


def test_spark_reads_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    """The one with everything in it: what HTTP shows, and no more."""
    server = copied("stopped", tmp_path).start()
    try:
        facts = seen(server)["topics"]
        read = spark.read.format("topics").options(url=server.url, subscribePattern=".*")
        rows = read.load().collect()
    finally:
        server.stop()
    assert facts.keys() == kept("stopped/expected.json")["topics"].keys()
    found = {(row.topic, row.seq): (row.tag, row.node, json.loads(row.data)) for row in rows if row.seq}
    assert found == {
        (topic, record["$seq"]): (record.get("$tag"), record.get("$node"), record["data"])
        for topic, said in facts.items()
        for record in said["records"]
    }
    losses = [row for row in rows if row.kind == "tombstone"]
    assert len(found) + len(losses) == len(rows)
    assert sorted((row.topic, row.gap_from, row.gap_to, row.reason) for row in losses) == sorted(
        (topic, gap["gap_from"], gap["gap_to"], gap["reason"])
        for topic, said in facts.items()
        for gap in said["gaps"]
    )
