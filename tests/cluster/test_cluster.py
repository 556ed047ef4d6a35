"""The same jobs on a real cluster, whose workers see the server's files or do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.driver_process import Driver
from tests.cluster.spark_cluster import SparkCluster
from tests.spark.server import Server
from tests.spark.wiretap import Wiretap
from tests.spark.workers import descendants
from tests.support import eventually

# The first test of all has to wait for four JVMs.
pytestmark = pytest.mark.timeout(300)

COUNT = 60_000


@pytest.fixture
def tap(server: Server) -> Iterator[Wiretap]:
    tap = Wiretap(server.url)
    yield tap
    tap.close()


def data(server: Server, topic: str) -> list[Any]:
    return [record["data"] for record in server.diff(topic)[0]]


def test_a_batch_is_read_by_all_workers(
    server: Server, in_sight: Server, tap: Wiretap, driver: Driver
) -> None:
    count, total, processes = driver.run("scan", url=tap.url, topic="sealed", minPartitions="4", loss="fail")
    assert (count, total) == (COUNT, COUNT * (COUNT + 1) // 2)
    assert processes == 2
    scans = [request for request in tap.requests if "/scan" in request]
    assert bool(scans) == (server is not in_sight)


def test_a_stream_goes_into_a_topic_once(server: Server, topic: str, driver: Driver, tmp_path: Path) -> None:
    target = f"{topic}.out"
    arguments = {"url": server.url, "source": topic, "target": target, "checkpoint": str(tmp_path)}
    server.append(topic, *range(500))
    assert driver.run("stream", **arguments)
    server.append(topic, *range(500, 600))
    for commit in (tmp_path / "commits").iterdir():  # as after a crash: the last batch runs again
        commit.unlink()
    assert driver.run("stream", **arguments)
    assert data(server, target) == list(range(600))


def test_archive_and_audit(server: Server, driver: Driver, tmp_path: Path) -> None:
    facts = driver.run(
        "pipelines", url=server.url, topic="sealed", table=str(tmp_path / "lake"), state=str(tmp_path)
    )
    assert facts["archive"]["ok"], facts
    assert facts["archive"]["records"] == COUNT
    assert facts["audit"]["ok"], facts
    (found,) = facts["audit"]["topics"]
    assert (found["archived"], found["live"], found["archived_and_live"]) == (COUNT, COUNT, COUNT)


def executors(cluster: SparkCluster) -> list[int]:
    """Those that have Python at work: the processes in which tasks run."""
    return [
        pid
        for worker in cluster.workers
        for pid, command in descendants(worker).items()
        if b"CoarseGrainedExecutorBackend" in command
        and any(b"pyspark.daemon" in below for below in descendants(pid).values())
    ]


def test_an_executor_killed_in_the_middle_of_a_write(
    out_of_sight: Server, topic: str, cluster: SparkCluster, driver: Driver, tmp_path: Path
) -> None:
    pause = tmp_path / "pause"
    driver.begin("write", url=out_of_sight.url, topic=topic, count=20_000, pause=str(pause))
    eventually(pause.exists, 60)
    busy = executors(cluster)
    assert busy
    for pid in busy:
        os.kill(pid, signal.SIGKILL)
    assert driver.finish()
    assert data(out_of_sight, topic) == list(range(20_000))
