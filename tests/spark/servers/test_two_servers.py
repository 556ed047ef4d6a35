"""Spark with two real servers behind one `url`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_topics
from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.pipelines.archive import Archive
from pyspark_topics.pipelines.erase import Erase
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.route import Route
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.session import beside
from tests.spark.pipelines.running import Notes
from tests.spark.server import Server
from tests.spark.streams import Stream

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def both(start_server: Callable[..., Server]) -> tuple[Server, Server]:
    return start_server(), start_server()


def test_topics_of_two_servers_are_written_read_and_followed(
    spark: SparkSession, both: tuple[Server, Server], tmp_path: Path
) -> None:
    one, two = both
    url = f"{one.url},{two.url}"
    two.append("clicks", "first")
    rows = [("clicks", '"c"'), ("orders", '"o"'), ("clicks", '"d"')]
    frame = spark.createDataFrame(rows, "topic STRING, data STRING").coalesce(1)
    for _ in range(2):  # the second time it is known on both
        options = {"url": url, "txnAppId": "job", "txnVersion": "1"}
        frame.write.format("topics").options(**options).mode("append").save()
    assert (one.data("orders"), two.data("clicks")) == (["o"], ["first", "c", "d"])  # new ones: on the first
    session = beside(spark)
    assert pyspark_topics.attach(session, url) == ["clicks", "orders"]
    union = "SELECT data FROM orders UNION ALL SELECT data FROM clicks"
    assert sorted(row.data for row in session.sql(union).collect()) == ['"c"', '"d"', '"first"', '"o"']
    stream = Stream(spark, url, tmp_path)
    assert len(stream.run("orders,clicks")) == 4
    two.append("clicks", "e")
    one.drop("orders")
    two.append("orders", "another")  # with the seq and the epoch of the one that is gone
    found = stream.run("orders,clicks")
    assert sorted(row.data or row.reason for row in found) == ['"another"', '"e"', "recreated"]


def test_pipelines_know_which_server_has_a_topic(
    spark: SparkSession, both: tuple[Server, Server], tmp_path: Path
) -> None:
    one, two = both
    one.append("orders", 1, 2)
    two.append("derived", 0)
    two.append("clicks", {"data": 3, "tag": "user:7"})
    two.configure("small", cap_records=1)
    two.append("small", 1, 2, 3)
    runner = Runner(Address(f"{one.url},{two.url}"), tmp_path, lambda: spark, Notes(), once=True)
    table = str(tmp_path / "lake")
    route = Route(topics=["orders", "small"], into="derived", sql="SELECT data FROM records")
    lake = Archive(topics=["orders", "clicks"], table=table)
    outcomes = runner.run({"route": route, "lake": lake})
    assert all(outcome.ok for outcome in outcomes.values()), outcomes
    written = two.data("derived")
    assert [one for one in written if not isinstance(one, dict)] == [0, 1, 2, 3]
    losses = [one for one in written if isinstance(one, dict)]
    assert [(gap["topic"], gap["gap_from"], gap["gap_to"]) for gap in losses] == [("small", 1, 2)]
    assert one.ask("GET", "/v0/topics/orders/cursors")["cursors"][0]["lag"] == 0
    assert sum(file.rows for file in Lake.existing(table).files()) == 3
    erased = runner.run({"erase": Erase(tag="user:7", tables=[table])})["erase"]
    assert erased.ok, erased.facts
    assert (erased.facts["topics"]["clicks"], two.data("clicks")) == (1, [])
