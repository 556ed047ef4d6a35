"""The same jobs on a real cluster, whose workers see the server's files or do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_topics.pipelines.lake import Lake
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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["archive", "route", "load", "replay"])
def test_executors_killed_in_the_middle_of_a_pipeline(
    kind: str, out_of_sight: Server, topic: str, cluster: SparkCluster, driver: Driver, tmp_path: Path
) -> None:
    """While a task reads from the server, or has begun to stage rows there."""
    table, into = str(tmp_path / "lake"), f"{topic}.into"
    archive = {"kind": "archive", "topics": [topic], "table": table}
    settings: dict[str, dict[str, Any]] = {
        "archive": archive,
        "route": {"kind": "route", "topics": [topic], "into": into, "sql": "SELECT data FROM records"},
        "load": {"kind": "load", "files": [str(tmp_path / "numbers.json")], "into": into},
        "replay": {"kind": "replay", "table": table, "topic": topic, "into": into},
    }
    out_of_sight.fill(topic, 20_000)
    numbers = data(out_of_sight, topic)
    (tmp_path / "numbers.json").write_text("".join(f"{number}\n" for number in numbers))
    if kind == "replay":
        assert driver.run("pipeline", url=out_of_sight.url, state=str(tmp_path), settings=archive)["ok"]
    tap = Wiretap(out_of_sight.url)
    try:
        tap.hold = b"/scan" if kind == "archive" else b"/parts/"
        driver.begin("pipeline", url=tap.url, state=str(tmp_path), settings=settings[kind])
        assert tap.holding.wait(120)
        busy = executors(cluster)
        assert busy
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
        tap.release.set()
        assert driver.finish()["ok"]
    finally:
        tap.release.set()
        tap.close()
    if kind == "archive":
        rows = Lake.existing(table).records.to_pyarrow_table().to_pydict()
        assert sorted(zip(rows["seq"], map(int, rows["data"]), strict=True)) == list(enumerate(numbers, 1))
    else:
        assert sorted(data(out_of_sight, into)) == sorted(numbers)
        assert out_of_sight.state(into)["head_seq"] == len(numbers)
