"""The sink: all or nothing, and once, whatever is repeated."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pyspark_topics.errors import OptionError
from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.options import WriteOptions
from pyspark_topics.writer import BatchWriter, StreamWriter
from tests.spark.server import Server
from tests.support import eventually

Write = Callable[..., None]


@pytest.fixture
def write(server: Server) -> Write:
    def save(frame: DataFrame, mode: str = "append", **options: str) -> None:
        frame.write.format("topics").option("url", server.url).options(**options).mode(mode).save()

    return save


def is_missing(server: Server, topic: str) -> bool:
    return server.http.get(f"{server.url}/v0/topics/{topic}").status_code == 404


# --- batch ----------------------------------------------------------------------------------------------


def test_rows_become_records(spark: SparkSession, server: Server, topic: str, write: Write) -> None:
    frame = spark.sql(
        """SELECT named_struct('n', id, 'l', array(id, id + 1)) AS data,
                  if(id = 1, 'odd', NULL) AS tag, if(id = 2, 'east', NULL) AS node,
                  if(id = 0, map('k', 'v'), NULL) AS meta
           FROM range(0, 3, 1, 1)"""
    )
    write(frame, topic=topic)
    records, _ = server.diff(topic)
    for record in records:
        del record["$ts"]
    assert records == [
        {"$seq": 1, "data": {"n": 0, "l": [0, 1]}, "meta": {"k": "v"}},
        {"$seq": 2, "$tag": "odd", "data": {"n": 1, "l": [1, 2]}},
        {"$seq": 3, "$node": "east", "data": {"n": 2, "l": [2, 3]}},
    ]


def test_rows_keep_their_order_within_a_partition(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    write(spark.range(0, 25_000, 1, 3).select(f.col("id").cast("string").alias("data")), topic=topic)
    assert server.data(topic) == list(range(25_000))


def test_variants_are_written_as_the_json_they_hold(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    write(spark.sql("""SELECT parse_json('{"a":[1,"x",null]}') AS data"""), topic=topic)
    assert server.data(topic) == [{"a": [1, "x", None]}]


def test_rows_may_name_their_topics(spark: SparkSession, server: Server, topic: str, write: Write) -> None:
    frame = spark.range(6).selectExpr("string(id) AS data", f"concat('{topic}.', id % 2) AS topic")
    write(frame.coalesce(1))
    assert server.data(f"{topic}.0") == [0, 2, 4]
    assert server.data(f"{topic}.1") == [1, 3, 5]


def test_a_job_that_fails_leaves_nothing_behind(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    @f.udf("string", useArrow=False)
    def explode_late(number: int) -> str:
        if number == 999:
            raise ValueError("boom")
        return str(number)

    with pytest.raises(PySparkException, match="boom"):
        write(spark.range(0, 1000, 1, 4).select(explode_late("id").alias("data")), topic=topic)
    assert is_missing(server, topic)


def test_a_task_that_is_tried_again_counts_once(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    @f.udf("string", useArrow=False)
    def fail_first(number: int) -> str:
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1 and task.attemptNumber() == 0 and number == 1999:
            raise ValueError("a worker died")
        return str(number)

    write(spark.range(0, 2000, 1, 2).select(fail_first("id").alias("data")), topic=topic)
    assert server.data(topic) == list(range(2000))


def test_another_thread_can_write_once_it_knows_the_session(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    def work() -> None:
        spark.createDataFrame([], "x int")
        write(spark.sql("SELECT '1' AS data"), topic=topic)

    with ThreadPoolExecutor(1) as other:
        other.submit(work).result()
    assert server.data(topic) == [1]


def test_text_that_is_not_json_is_refused_as_a_whole(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    with pytest.raises(PySparkException, match="not valid JSON"):
        write(spark.sql("SELECT if(id = 3, 'nope', '1') AS data FROM range(5)"), topic=topic)
    assert is_missing(server, topic)


@pytest.mark.parametrize(
    ("kind", "says"), [(BatchWriter, 'use mode("append")'), (StreamWriter, 'use outputMode("append"), or')]
)
def test_who_would_overwrite_a_topic_is_told_how_to_append(
    kind: type[BatchWriter] | type[StreamWriter], says: str
) -> None:
    options = WriteOptions(Address("http://127.0.0.1:9"), "topic")
    with pytest.raises(OptionError, match=re.escape(says)):
        kind(options, StructType().add("data", "string"), True)


def test_a_topic_is_not_overwritten(spark: SparkSession, topic: str, write: Write) -> None:
    frame = spark.sql("SELECT '1' AS data")
    with pytest.raises(PySparkException, match="only appended to"):
        write(frame, mode="overwrite", topic=topic)


def test_loss_rows_do_not_become_records(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    server.configure(topic, cap_records=1)
    server.append(topic, 1, 2, 3)
    frame = spark.read.format("topics").option("url", server.url).option("subscribe", topic).load()
    with pytest.raises(PySparkException, match="NULL as its data"):
        write(frame.select("data"), topic=f"{topic}.copy")
    write(frame.where("kind = 'record'").select("data", "tag"), topic=f"{topic}.copy")
    assert server.data(f"{topic}.copy") == [3]


# --- streams --------------------------------------------------------------------------------------------


def run_stream(
    spark: SparkSession,
    server: Server,
    source: str,
    target: str,
    checkpoint: Path,
    *columns: str,
    **options: str,
) -> None:
    frame = (
        spark.readStream.format("topics")
        .option("url", server.url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("loss", "fail")
        .options(**options)
        .load()
        .selectExpr(*(columns or ("data", "tag")))
    )
    query = (
        frame.writeStream.format("topics")
        .option("url", server.url)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .queryName(target)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)


def forget_commits(checkpoint: Path) -> None:
    """As after a crash, or a power loss that took Spark's own files: the last batch runs again."""
    for commit in (checkpoint / "commits").iterdir():
        commit.unlink()


def test_a_stream_arrives_once_even_if_spark_forgets(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}.out"
    server.append(topic, *range(50))
    run_stream(spark, server, topic, target, tmp_path, maxOffsetsPerTrigger="20")
    assert server.data(target) == list(range(50))
    forget_commits(tmp_path)
    server.append(topic, 50)
    run_stream(spark, server, topic, target, tmp_path, maxOffsetsPerTrigger="20")
    assert server.data(target) == list(range(51))


def test_the_identity_is_the_one_in_the_checkpoint(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.append(topic, 1)
    run_stream(spark, server, topic, f"{topic}.out", tmp_path)
    query_id = json.loads((tmp_path / "metadata").read_text())["id"]
    run_stream(spark, server, topic, f"{topic}.out2", tmp_path.with_name("other"))
    assert stage_again(server, query_id, 0, "1", f"{topic}.out")["deduped"] is True
    assert stage_again(server, query_id, 1, "1", f"{topic}.out")["deduped"] is False
    assert server.data(f"{topic}.out") == [1, 1]


def stage_again(server: Server, identity: str, batch: int, text: str, topic: str) -> Any:
    sink = pa.BufferOutputStream()
    table = pa.table({"data": [text], "tag": pa.array([None], pa.string())})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stage = f"by-hand-{batch}"
    answer = server.http.put(
        f"{server.url}/v0/stages/{stage}/parts/0?topic={topic}",
        content=sink.getvalue().to_pybytes(),
        headers={"Content-Type": "application/vnd.apache.arrow.stream"},
    )
    assert answer.status_code < 300, answer.text
    body = {"identity": {"id": identity, "batch": batch}, "parts": [0]}
    return server.ask("POST", f"/v0/stages/{stage}/commit", body)


def test_a_repetition_with_other_rows_fails_loudly(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.append(topic, 1)
    run_stream(spark, server, topic, f"{topic}.out", tmp_path, "string(rand()) AS data")
    before = server.data(f"{topic}.out")
    forget_commits(tmp_path)
    with pytest.raises(StreamingQueryException, match="stage_conflict"):
        run_stream(spark, server, topic, f"{topic}.out", tmp_path, "string(rand()) AS data")
    assert server.data(f"{topic}.out") == before


def test_a_batch_without_rows_is_no_problem(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.append(topic, 1)
    run_stream(spark, server, topic, f"{topic}.out", tmp_path, tag="absent")
    assert is_missing(server, f"{topic}.out")
    server.append(topic, {"data": 2, "tag": "present"})
    run_stream(spark, server, topic, f"{topic}.out", tmp_path, tag="present")
    assert server.data(f"{topic}.out") == [2]


DRIVER = """
import sys
from pyspark_topics.session import spark_session
url, source, target, checkpoint = sys.argv[1:]
spark = spark_session(master="local[2]")
frame = (spark.readStream.format("topics").option("url", url).option("subscribe", source)
         .option("startingOffsets", "earliest").option("loss", "fail").option("maxOffsetsPerTrigger", "20")
         .load().select("data", "tag"))
(frame.writeStream.format("topics").option("url", url).option("topic", target)
      .option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination())
"""


@pytest.mark.timeout(240)
def test_a_driver_killed_in_the_middle_neither_loses_nor_doubles(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    """Another process, with a JVM of its own, is killed; the query goes on here from its checkpoint."""
    target = f"{topic}.out"
    server.append(topic, *range(400))
    server.configure(target)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, server.url, topic, target, str(tmp_path)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: driver.poll() is not None or server.state(target)["head_seq"] >= 60, 150)
        assert driver.poll() is None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert 60 <= server.state(target)["head_seq"] < 400
    run_stream(spark, server, topic, target, tmp_path)
    assert server.data(target) == list(range(400))


# --- a record's own time --------------------------------------------------------------------------------


def test_the_time_of_a_record_travels_beside_the_servers(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    frame = spark.sql(
        """SELECT string(id) AS data, if(id = 1, map('k', 'v'), NULL) AS meta,
                  if(id < 2, timestamp_millis(1500 + id), NULL) AS event_ts FROM range(0, 3, 1, 1)"""
    )
    write(frame, topic=topic)
    records, _ = server.diff(topic)
    assert [record.get("meta") for record in records] == [
        {"event_ts": 1500},
        {"k": "v", "event_ts": 1501},
        None,
    ]
    read = spark.read.format("topics").options(url=server.url, subscribe=topic, loss="ignore").load()
    found = read.selectExpr("unix_millis(event_ts) AS ms", "unix_millis(ts) AS ts").collect()
    assert [row.ms for row in found] == [1500, 1501, None]
    assert all(row.ts > 1_000_000_000_000 for row in found)
    alone = read.select("event_ts").collect()
    assert len(alone) == 3
    with pytest.raises(PySparkException, match='takes a timestamp as column "event_ts"'):
        write(spark.sql("SELECT '1' AS data, 7 AS event_ts"), topic=topic)


# --- batches by name and number -------------------------------------------------------------------------


def test_a_batch_with_a_name_and_a_number_is_written_once(
    spark: SparkSession, server: Server, topic: str, write: Write
) -> None:
    def batch(version: int, *values: int) -> None:
        rows = [(str(value),) for value in values]
        write(
            spark.createDataFrame(rows, "data string"), topic=topic, txnAppId=topic, txnVersion=str(version)
        )

    batch(0, 1, 2)
    batch(0, 1, 2)
    batch(1, 3)
    assert sorted(server.data(topic)) == [1, 2, 3]
    for values in ((1, 2, 9), ()):
        with pytest.raises(PySparkException, match=r"txnVersion 0 of txnAppId .* needs a new txnAppId"):
            batch(0, *values)
    batch(2)
    with pytest.raises(PySparkException, match="txnVersion 2"):
        batch(2, 7)
    assert sorted(server.data(topic)) == [1, 2, 3]
    with pytest.raises(PySparkException, match='"txnAppId" and "txnVersion" go together'):
        write(spark.createDataFrame([("1",)], "data string"), topic=topic, txnAppId="x")
