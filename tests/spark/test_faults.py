"""Faults: each has one defined result and says what to do about it, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession

from pyspark_topics.payload import parse_data
from tests.spark.server import Server
from tests.spark.streams import Stream, failure, gaps, seqs
from tests.spark.workers import Interruption, jvm, kill_python_workers
from tests.support import free_port

Options = dict[str, str]
Job = Callable[[SparkSession, Options, Path], None]


# --- a server that is away, and one that does not let us in ---------------------------------------------


def read_job(spark: SparkSession, options: Options, _folder: Path) -> None:
    spark.read.format("topics").options(**options, subscribe="t").load().collect()


def stream_job(spark: SparkSession, options: Options, folder: Path) -> None:
    frame = spark.readStream.format("topics").options(**options, subscribe="t").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()


def write_job(spark: SparkSession, options: Options, _folder: Path) -> None:
    frame = spark.sql("SELECT '1' AS data")
    frame.write.format("topics").options(**options, topic="t").mode("append").save()


JOBS = pytest.mark.parametrize("job", [read_job, stream_job, write_job])


def failed(job: Job, spark: SparkSession, options: Options, folder: Path) -> str:
    with pytest.raises(PySparkException) as caught:
        job(spark, options, folder)
    return str(caught.value)


@JOBS
def test_a_server_that_is_away_is_named(spark: SparkSession, tmp_path: Path, job: Job) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    message = failed(job, spark, {"url": url, "patience": "0.2"}, tmp_path)
    assert f"no answer from the topics server at {url}" in message


@pytest.fixture(scope="module")
def locked(start_server: Callable[..., Server]) -> Server:
    return start_server(TOPICS_API_KEYS="right")


@JOBS
def test_a_wrong_key_is_refused_with_a_hint(
    spark: SparkSession, locked: Server, tmp_path: Path, job: Job
) -> None:
    message = failed(job, spark, {"url": locked.url, "apiKey": "wrong"}, tmp_path)
    assert "401 unauthorized: give a valid key" in message
    assert "wrong" not in message.replace("went wrong", "")


def test_an_outage_longer_than_the_patience_ends_the_query_and_nothing_is_lost(
    spark: SparkSession, start_server: Callable[..., Server], topic: str, tmp_path: Path
) -> None:
    own = start_server()
    stream = Stream(spark, own.url, tmp_path)
    own.append(topic, 1, 2)
    assert seqs(stream.run(topic)) == [1, 2]
    own.append(topic, 3)
    own.kill()
    assert "no answer from the topics server" in failure(lambda: stream.run(topic, patience=0.2))
    own.start()
    assert seqs(stream.run(topic)) == [3]


# --- things that die in the middle of a job -------------------------------------------------------------


def numbered(spark: SparkSession, column: Any) -> DataFrame:
    """Two tasks; the second one is the one that stops for a while."""
    return spark.range(0, 40_000, 1, 2).selectExpr("id", "string(id) AS data").select(column.alias("data"))


def save(frame: DataFrame, url: str, topic: str) -> None:
    frame.write.format("topics").options(url=url, topic=topic).mode("append").save()


def test_a_server_killed_in_the_middle_of_a_write(
    spark: SparkSession, start_server: Callable[..., Server], topic: str, tmp_path: Path
) -> None:
    own = start_server()
    pause = Interruption(tmp_path)

    def restart() -> None:
        own.kill()
        own.start()

    with pause.meanwhile(restart):
        save(numbered(spark, pause.pauses_at(39_999, "data")), own.url, topic)
    assert own.data(topic) == list(range(40_000))


def test_workers_killed_in_the_middle_of_a_write(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    pause = Interruption(tmp_path)
    with pause.meanwhile(lambda: kill_python_workers(jvm(spark))):
        save(numbered(spark, pause.pauses_at(39_999, "data")), server.url, topic)
    assert server.data(topic) == list(range(40_000))


def test_workers_killed_in_the_middle_of_a_read(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.fill(topic, 30_000)
    pause = Interruption(tmp_path)
    frame = spark.read.format("topics").options(url=server.url, subscribe=topic, minPartitions="2").load()
    numbers = frame.withColumn("id", frame.seq).select(pause.pauses_at(29_000, "data").alias("data"))
    with pause.meanwhile(lambda: kill_python_workers(jvm(spark))):
        found = sorted(int(row.data) for row in numbers.collect())
    assert found == list(range(30_000))


# --- a target that changes under a query ----------------------------------------------------------------


def test_a_target_deleted_and_made_again_gets_what_comes_after_that(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}.out"

    def run() -> None:
        source = {"url": server.url, "subscribe": topic, "startingOffsets": "earliest", "loss": "fail"}
        frame = spark.readStream.format("topics").options(**source).load().select("data")
        sink = {"url": server.url, "topic": target, "checkpointLocation": str(tmp_path)}
        query = frame.writeStream.format("topics").options(**sink).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    server.append(topic, 1, 2)
    run()
    server.drop(target)
    server.append(topic, 3)
    run()
    assert server.data(target) == [3]


# --- text that does not fit a schema --------------------------------------------------------------------


def test_malformed_records_are_kept_and_counted(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.configure(topic, cap_records=4)
    server.append(topic, {"id": 0}, {"id": 1}, {"id": "x"}, [7], {"id": 2})
    seen = Observation()
    frame = spark.read.format("topics").options(url=server.url, subscribe=topic).load()
    parsed = parse_data(frame, "id BIGINT", seen)
    assert {row.malformed for row in parsed.collect()} == {None, '{"id":"x"}', "[7]"}
    assert seen.get == {"records": 4, "malformed": 2}
    stream = spark.readStream.format("topics").options(url=server.url, subscribe=topic).load()
    query = (
        parse_data(stream, "id BIGINT", "orders")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        server.append(topic, "nonsense")
        query.processAllAvailable()
        counted = [p.observedMetrics["orders"] for p in query.recentProgress if p.observedMetrics]
    finally:
        query.stop()
    assert sum(row.malformed for row in counted) == 1


# --- checkpoints ----------------------------------------------------------------------------------------


def spoil(file: Path, text: str) -> None:
    file.write_text(text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("offsets/0", "", "Incomplete log file"),
        ("offsets/0", "v1\n{}\nnot json", "offset"),
        ("commits/0", "nonsense", "log version"),
        ("metadata", "nonsense", "metadata"),
    ],
)
def test_a_damaged_checkpoint_stops_the_query(
    server: Server, topic: str, stream: Stream, file: str, text: str, expected: str
) -> None:
    server.append(topic, 1)
    stream.run(topic)
    spoil(stream.checkpoint / file, text)
    server.append(topic, 2)
    with pytest.raises(Exception, match=f"(?is){expected}"):
        stream.run(topic)
    assert seqs(stream.rows) == [1]


def test_a_checkpoint_without_its_id_is_not_taken_for_a_new_query(
    server: Server, topic: str, stream: Stream
) -> None:
    """The id is what the sink knows repetitions by."""
    server.append(topic, 1)
    stream.run(topic)
    (stream.checkpoint / "metadata").unlink()
    server.append(topic, 2)
    with pytest.raises(Exception, match=r"(?i)metadata"):
        stream.run(topic)
    assert (gaps(stream.rows), seqs(stream.rows)) == ([], [1])
