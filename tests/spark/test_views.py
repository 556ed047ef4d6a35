"""Topics in SQL, under their own names, and sessions that nothing of ours has prepared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pyspark_topics
from pyspark_topics.errors import OptionError
from pyspark_topics.session import beside
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)


def test_topics_are_views_under_their_own_names(spark: SparkSession, server: Server, topic: str) -> None:
    session = beside(spark)
    orders, stock = f"{topic}.orders", f"{topic}.stock:1"
    server.append(orders, {"sku": "a"}, {"sku": "b"})
    assert pyspark_topics.attach(session, server.url, prefix=f"{topic}.") == [orders]
    assert session.sql(f"SELECT count(*) AS n FROM `{orders}`").first().n == 2
    server.append(stock, {"sku": "b"})
    server.append(orders, {"sku": "b"})
    assert pyspark_topics.attach(session, server.url, prefix=f"{topic}.", loss="ignore") == [orders, stock]
    joined = f"SELECT o.seq FROM `{orders}` o JOIN `{stock}` s ON o.data = s.data ORDER BY 1"
    assert [row.seq for row in session.sql(joined).collect()] == [2, 3]
    names = pyspark_topics.attach(
        session, server.url, prefix=orders, streaming=True, startingOffsets="earliest", maxOffsetsPerTrigger=1
    )
    assert names == [orders]
    stream = session.sql(f"SELECT seq FROM `{orders}`")
    assert stream.isStreaming
    with pytest.raises(AnalysisException, match="UNSUPPORTED_INSERT"):
        session.sql(f"INSERT INTO `{orders}` (data) VALUES ('1')")
    with pytest.raises(OptionError, match="no option"):
        pyspark_topics.attach(session, server.url, subscribee="x")
    with pytest.raises(OptionError, match='"subscribe" is not for it: give a prefix'):
        pyspark_topics.attach(session, server.url, subscribe=orders)
    pyspark_topics.attach(session, server.url, prefix=orders, includeMeta=False, tag=None)
    assert "meta" not in session.table(f"`{orders}`").columns
    with pytest.raises(Exception, match="attach makes it, is not written to by INSERT") as caught:
        session.sql(f"INSERT INTO `{orders}` (data) VALUES ('1')")
    assert 'use df.write.format("topics") with option "topic"' in str(caught.value)
    assert server.state(orders)["head_seq"] == 3


def test_names_that_sql_does_not_tell_apart_are_refused(
    spark: SparkSession, server: Server, topic: str
) -> None:
    for name in ("Orders", "orders"):
        server.append(f"{topic}.{name}", 1)
    with pytest.raises(OptionError, match=f'"{topic}.Orders" and "{topic}.orders" would be one view'):
        pyspark_topics.attach(spark, server.url, prefix=f"{topic}.")


def test_create_table_leads_to_what_works(spark: SparkSession, topic: str) -> None:
    session = beside(spark)
    statement = f"CREATE TABLE `{topic}` USING topics OPTIONS (url 'http://x', subscribe 'y')"
    with pytest.raises(Exception, match=r"pyspark_topics\.attach\(spark, url\)") as caught:
        session.sql(statement)
    assert 'df.write.format("topics")' in str(caught.value)


JOB = """
import pyspark_topics
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("topics").load()
except Exception as error:
    print("found" if "subscribePattern" in str(error) else error)
"""


def test_a_plain_session_finds_the_source_whatever_python_is_first_on_the_path(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = f"{tmp_path}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.strip() == "found", done.stdout + done.stderr
