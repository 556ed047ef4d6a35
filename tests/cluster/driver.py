"""A driver on a cluster: takes jobs as lines of JSON, answers with lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.options import ServerOptions
from pyspark_topics.pipelines import Archive, Audit
from pyspark_topics.pipelines.context import Pipeline
from pyspark_topics.pipelines.declaration import from_table
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.session import spark_session

ANSWER = "ANSWER "


def scan(spark: SparkSession, url: str, topic: str, **options: str) -> Any:
    """Rows, the sum of their seqs, and in how many processes they were read."""
    frame = spark.read.format("topics").options(url=url, subscribe=topic, **options).load()

    @f.udf("string")
    def where(_: int) -> str:
        return str(os.getppid())

    row = frame.select(f.count("seq"), f.sum("seq"), f.count_distinct(where("seq"))).collect()[0]
    return list(row)


def stream(spark: SparkSession, url: str, source: str, target: str, checkpoint: str) -> Any:
    options = {"url": url, "subscribe": source, "startingOffsets": "earliest", "loss": "fail"}
    frame = spark.readStream.format("topics").options(**options).load().select("data", "tag")
    sink = {"url": url, "topic": target, "checkpointLocation": checkpoint}
    query = frame.writeStream.format("topics").options(**sink).trigger(availableNow=True).start()
    return query.awaitTermination(90)


def write(spark: SparkSession, url: str, topic: str, count: int, pause: str | None = None) -> Any:
    """Numbers in four tasks. With `pause`, a first attempt touches that file and waits."""

    @f.udf("string")
    def pass_on(number: int) -> str:
        task = TaskContext.get()
        if pause is not None and number == count - 1 and task is not None and task.attemptNumber() == 0:
            Path(pause).touch()
            time.sleep(60)
        return str(number)

    frame: DataFrame = spark.range(0, count, 1, 4).select(pass_on("id").alias("data"))
    frame.write.format("topics").options(url=url, topic=topic).mode("append").save()
    return True


class _Unseen:
    def show(self, *_: object, **__: object) -> None:
        return


def pipelines(spark: SparkSession, url: str, topic: str, table: str, state: str) -> Any:
    """Archive, then audit."""
    steps: dict[str, Pipeline] = {
        "archive": Archive(topics=[topic], table=table),
        "audit": Audit(topics=[topic], table=table),
    }
    facts = {}
    for name, one in steps.items():
        runner = Runner(ServerOptions(url), Path(state), lambda: spark, _Unseen(), once=True)
        outcome = runner.run({name: one})[name]
        facts[name] = {"ok": outcome.ok, **outcome.facts}
    return facts


def pipeline(spark: SparkSession, url: str, state: str, settings: dict[str, Any]) -> Any:
    """One, as a file declares it, up to the heads of now."""
    one = from_table({"pipeline": {"it": settings}}).pipelines["it"]
    outcome = Runner(ServerOptions(url), Path(state), lambda: spark, _Unseen(), once=True).run({"it": one})[
        "it"
    ]
    return {"ok": outcome.ok, **outcome.facts}


_JOBS = (scan, stream, write, pipelines, pipeline)
JOBS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _JOBS}


def main(master: str) -> None:
    settings = {
        # Half of the cluster: others are to find some room.
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        # Not before both executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    spark = spark_session("cluster tests", master, settings)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": JOBS[asked.pop("job")](spark, **asked)}
        except Exception as error:
            answer = {"error": str(error)}
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
