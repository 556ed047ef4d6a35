"""Spark in a process of its own: takes jobs as lines of JSON, answers with what they took."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.payloads import FILLER
from pyspark_topics.options import ServerOptions
from pyspark_topics.pipelines import Archive
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.object_store import ObjectStore
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.session import spark_session

ANSWER = "ANSWER "
MASTER = "local[2]"
JSON_BYTES = 143
JSON_SCHEMA = "n BIGINT, user STRING, ref STRING, at BIGINT, text STRING"
# Rows of a micro-batch of which only its own cost is of interest.
_HANDFUL = 5
_WARM_UP = 3


def _json_text() -> Any:
    """Numbers of fixed width, a few digits that do not compress, and text that does."""
    values = [
        ('{"n":', "string(1000000000 + id)", 10),
        (',"user":"u-', "lpad(string(id % 9973), 8, '0')", 8),
        ('","ref":"', "md5(string(id))", 32),
        ('","at":', "string(1700000000000 + id)", 13),
        (',"text":"', "", 0),
    ]
    used = sum(len(key) + width for key, _, width in values) + len('"}')
    pieces = [piece for key, value, _ in values for piece in (f"'{key}'", value) if piece]
    return f.expr(f"concat({', '.join(pieces)}, '{FILLER[: JSON_BYTES - used]}\"}}')")


def prepare(spark: SparkSession, parquet: str, count: int) -> Any:
    """The rows everybody reads, as Spark's own format has them."""
    frame = spark.range(0, count, 1, 2).select((f.col("id") + 1).alias("seq"), _json_text().alias("data"))
    frame.write.mode("overwrite").parquet(parquet)
    shortest, longest = (
        spark.read.parquet(parquet).select(f.min(f.length("data")), f.max(f.length("data"))).first()
    )
    assert shortest == longest == JSON_BYTES, (shortest, longest)
    return count


def sink(spark: SparkSession, parquet: str, url: str, topic: str, count: int) -> Any:
    frame = spark.read.parquet(parquet).where(f.col("seq") <= count).select("data")
    started = time.perf_counter()
    frame.write.format("topics").options(url=url, topic=topic).mode("append").save()
    return time.perf_counter() - started


def scan_parquet(spark: SparkSession, parquet: str, parsed: bool, count: int) -> Any:
    return _scan(spark.read.parquet(parquet), parsed, count)


def scan_topic(spark: SparkSession, url: str, topic: str, direct: str, parsed: bool, count: int) -> Any:
    return _scan(_topic(spark, url, topic, direct=direct), parsed, count)


def scan_part(
    spark: SparkSession, url: str, topic: str, after: int, up_to: int, archive: str | None = None
) -> Any:
    """Records behind `after`: from the log, and with `archive` from its table what the log has let go of."""
    ends = {"startingOffsets": json.dumps({topic: after}), "endingOffsets": json.dumps({topic: up_to})}
    union = {} if archive is None else {"archive": archive}
    return _scan(_topic(spark, url, topic, **ends, **union), False, up_to - after, after)


def _topic(spark: SparkSession, url: str, topic: str, **more: str) -> DataFrame:
    options = {"url": url, "subscribe": topic, "columns": "seq,data", "loss": "fail", **more}
    return spark.read.format("topics").options(**options).load()


def _scan(frame: DataFrame, parsed: bool, count: int, after: int = 0) -> float:
    value = f.from_json("data", JSON_SCHEMA)["n"] if parsed else f.length("data")
    started = time.perf_counter()
    seqs, values = frame.select(f.sum("seq"), f.sum(value)).first()
    elapsed = time.perf_counter() - started
    numbers = count * (count + 1) // 2 + after * count
    expected = count * 1_000_000_000 + numbers - count if parsed else count * JSON_BYTES
    assert (seqs, values) == (numbers, expected)
    return elapsed


def drain(spark: SparkSession, url: str, topic: str, checkpoint: str, count: int) -> Any:
    """A backlog, in micro-batches of a million."""
    options = {"url": url, "subscribe": topic, "columns": "seq,data", "loss": "fail"}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000000"}
    frame = spark.readStream.format("topics").options(**options).load()
    started = time.perf_counter()
    query = _noop(frame, checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(progress.numInputRows for progress in query.recentProgress) == count
    return time.perf_counter() - started


def _noop(frame: DataFrame, checkpoint: str) -> Any:
    return frame.writeStream.format("noop").option("checkpointLocation", checkpoint)


def micro_batches(spark: SparkSession, url: str, topic: str, checkpoint: str, batches: int) -> Any:
    """Median of what Spark says a batch took from beginning to end, in milliseconds."""
    frame = spark.readStream.format("topics").options(url=url, subscribe=topic).load()
    query = _noop(frame, checkpoint).start()
    body = json.dumps({"records": [{"data": n} for n in range(_HANDFUL)]}).encode()
    try:
        query.processAllAvailable()  # it starts behind what is there now
        for _ in range(batches + _WARM_UP):
            request = urllib.request.Request(
                f"{url}/v0/topics/{topic}", body, {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request).close()
            query.processAllAvailable()
    finally:
        query.stop()
    took = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
    return median(took[_WARM_UP:])


class _Unseen:
    def show(self, *_: object, **__: object) -> None:
        return


def archive(
    spark: SparkSession, url: str, topic: str, table: str, count: int, state: str, storage: dict[str, str]
) -> Any:
    """Seconds, and bytes of the files."""
    pipeline = Archive(topics=[topic], table=table)
    runner = Runner(ServerOptions(url), Path(state), lambda: spark, _Unseen(), once=True, storage=storage)
    started = time.perf_counter()
    outcome = runner.run({"archive": pipeline})["archive"]
    elapsed = time.perf_counter() - started
    assert outcome.facts.get("records") == count, outcome
    return [elapsed, sum(one.size for one in Lake(table, storage).files())]


def puts(spark: SparkSession, table: str, target: str, storage: dict[str, str]) -> Any:
    """Seconds that the files of a table take as they are, from as many threads as an archive has tasks."""
    contents = [(one.path, (Path(table) / one.path).read_bytes()) for one in Lake(table).files()]
    store = ObjectStore(target, tuple(storage.items()))
    started = time.perf_counter()
    with ThreadPoolExecutor(spark.sparkContext.defaultParallelism) as threads:
        list(threads.map(lambda one: store.put(*one), contents))
    return time.perf_counter() - started


JOBS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (prepare, sink, scan_parquet, scan_topic, scan_part, drain, micro_batches, archive, puts)
}


def main() -> None:
    spark = spark_session("benchmarks", MASTER)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": JOBS[asked.pop("job")](spark, **asked)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
