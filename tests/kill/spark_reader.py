"""A Spark query that copies a topic to Parquet files while its server is killed again and again.

    python -m tests.kill.spark_reader URL TOPIC DIRECTORY

Runs until standard input ends; then it copies what is left and leaves.
"""

from __future__ import annotations

import sys
import threading
import time

from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from pyspark_topics.session import spark_session


def copy(spark: SparkSession, url: str, topic: str, directory: str, over: threading.Event) -> None:
    """One life of the query: until all is over, or the server was gone for too long."""
    options = {"url": url, "subscribe": topic, "startingOffsets": "earliest", "loss": "rows"}
    rows = spark.readStream.format("topics").options(**options).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    if over.is_set():
        writer.trigger(availableNow=True).start(f"{directory}/rows").awaitTermination()
        return
    query = writer.start(f"{directory}/rows")
    try:
        while not over.is_set() and not query.awaitTermination(0.5):
            pass
    finally:
        query.stop()


def main() -> int:
    url, topic, directory = sys.argv[1:]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    spark = spark_session("kill", "local[1]")
    print("started", flush=True)
    while True:
        last = over.is_set()
        try:
            copy(spark, url, topic, directory, over)
            if last:
                return 0
        except PySparkException as error:
            print(f"the query ended: {str(error).splitlines()[0][:200]}", file=sys.stderr, flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
