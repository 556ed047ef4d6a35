"""A route's query from its start on: when it starts, and when it has to be made anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyspark_topics.pipelines.route import Route
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server

# Python as Spark starts it: the first source is too late for Spark, which waits ten seconds.
_LATE = """#!/bin/sh
case "$*" in
  *python_streaming_source_runner*) mkdir '{mark}' 2>/dev/null && sleep 12 ;;
esac
exec '{python}' "$@"
"""


def copying(topic: str, **more: object) -> Route:
    return Route(
        topics=[topic], into=f"{topic}.out", **{"sql": "SELECT data FROM records", "every_s": 0.05, **more}
    )


class Gate(threading.Semaphore):
    """Closed until the test opens it; notes who came and went."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked, self.passed = threading.Event(), threading.Event()

    def __enter__(self) -> bool:
        self.asked.set()
        return super().acquire(timeout=60)

    def __exit__(self, *_: object) -> None:
        self.passed.set()


def test_a_query_starts_when_it_is_its_turn(
    server: Server, topic: str, pipelines: Pipelines, until: Callable[..., None]
) -> None:
    """Spark gives up on Python processes that are slow to start, as those of many queries together are."""
    server.append(topic, 1)
    server.configure(f"{topic}.out")
    gate = Gate()
    with pipelines.following({"it": copying(topic)}, starting=gate):
        until(gate.asked.is_set)
        assert not (pipelines.state / "it" / "checkpoint").exists()
        gate.release()
        until(lambda: server.data(f"{topic}.out") == [1])
        assert gate.passed.is_set()


def test_a_table_with_other_columns_makes_the_query_anew(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path, until: Callable[..., None]
) -> None:
    table = str(tmp_path / "prices")
    write_deltalake(table, pa.table({"sku": ["a"], "price": [1], "unused": ["x"]}))
    sql = "SELECT p.price FROM records r JOIN prices p ON p.sku = r.data.sku"
    route = copying(topic, sql=sql, schema="sku STRING", tables={"prices": table})
    server.configure(f"{topic}.out")
    with pipelines.following({"it": route}):
        server.append(topic, {"sku": "a"})
        until(lambda: server.data(f"{topic}.out") == [{"price": 1}])
        write_deltalake(
            table, pa.table({"sku": ["a"], "price": ["2 EUR"]}), mode="overwrite", schema_mode="overwrite"
        )
        server.append(topic, {"sku": "a"})
        until(lambda: server.data(f"{topic}.out") == [{"price": 1}, {"price": "2 EUR"}])
    write_deltalake(table, pa.table({"sku": ["a"]}), mode="overwrite", schema_mode="overwrite")
    server.append(topic, {"sku": "a"})
    assert "price" in pipelines.failure(route)
    assert len(server.data(f"{topic}.out")) == 2


@pytest.mark.slow
def test_python_that_is_late_is_started_again(server: Server, topic: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(_LATE.format(mark=tmp_path / "was-late", python=sys.executable))
    python.chmod(0o755)
    server.append(topic, 1)
    (tmp_path / "p.toml").write_text(
        f'url = "{server.url}"\nstate = "{tmp_path}/state"\n[pipeline.it]\nkind = "route"\n'
        f'topics = ["{topic}"]\ninto = "{topic}.out"\nsql = "SELECT data FROM records"\n'
    )
    command = [sys.executable, "-m", "topics", "pipeline", "run", "p.toml", "--once", "--master", "local[1]"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYSPARK_PYTHON": str(python)}, capture_output=True
    )
    assert (tmp_path / "was-late").exists()
    assert done.returncode == 0, done.stderr.decode()
    assert server.data(f"{topic}.out") == [1]
