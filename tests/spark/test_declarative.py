"""Spark Declarative Pipelines and Spark Connect, as their users run them.

    pip install -e '.[connect]' && pytest -m slow tests/spark/test_declarative.py

They need grpc and pandas, which nothing else here does: half a minute each, and not in every run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_topics.java import ensure_java
from tests.spark.server import Server
from tests.support.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOB = """
import sys
import pyspark_topics
from pyspark.sql import SparkSession
from pyspark_topics import publish_end
url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
rows = spark.createDataFrame([('"a"',), ('"b"',)], "data STRING")
rows.write.format("topics").options(url=url, topic="connected").mode("append").save()
frame = spark.read.format("topics").options(url=url, subscribe="connected").load()
assert sorted(row.data for row in frame.collect()) == ['"a"', '"b"'], frame.collect()
reader = spark.readStream.format("topics").options(url=url, subscribe="connected")
stream = reader.option("startingOffsets", "earliest").load()
writer = stream.select("data").writeStream.format("topics").options(url=url, topic="copied")
query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
query.awaitTermination()
rows.write.format("topics").options(url=url, topic="connected").mode("append").save()
assert publish_end(query, url, "job") == 2
assert pyspark_topics.attach(spark, url, prefix="connected") == ["connected"]
assert spark.sql("SELECT count(*) AS n FROM connected").first().n == 4
print("done")
"""


@pytest.fixture(autouse=True)
def needs() -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("pandas")


def run(command: list[str], **more: str) -> str:
    environment = {**os.environ, "JAVA_HOME": ensure_java(), "PYSPARK_PYTHON": sys.executable, **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_declarative_example_fills_large_orders(server: Server, tmp_path: Path) -> None:
    server.configure("recent", cap_records=1)
    server.append("orders", {"sku": "a", "qty": 1}, {"sku": "b", "qty": 2}, {"sku": "c", "qty": 5})
    server.append("recent", {"sku": "d", "qty": 1}, {"sku": "e", "qty": 1}, {"sku": "f", "qty": 3})
    project = tmp_path / "declarative"
    shutil.copytree(ROOT / "examples" / "declarative", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/topics-declarative", f"file://{tmp_path}/storage"))
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)]
    for _ in range(2):  # the second run goes on behind the first
        run(command, TOPICS_URL=server.url)
    found = server.data("large-orders")
    assert sorted(one["sku"] for one in found if "sku" in one) == ["b", "c", "f"]
    gaps = [(one["topic"], one["gap_from"], one["gap_to"]) for one in found if one.get("kind") == "tombstone"]
    assert gaps == [("recent", 1, 2)]


def test_spark_connect_reads_writes_and_attaches(server: Server, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    assert run([sys.executable, str(job), server.url, str(tmp_path / "checkpoint")]).endswith("done\n")
    assert sorted(server.data("copied")) == ["a", "b"]
