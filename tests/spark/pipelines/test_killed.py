"""Drivers killed at the worst moment, and started again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_topics.pipelines.lake import Lake
from tests.spark.conftest import Server

# Each pipeline gets through its first commit. In the second, the archive hangs when its files are written and
# nothing is committed; the route when the server has everything, and Spark does not know yet.
DRIVER = """
import sys, time
from pathlib import Path
from pyspark_topics.pipelines import archive, lake, route, staging
from pyspark_topics.pipelines.context import Server
from pyspark_topics.pipelines.declaration import load
from pyspark_topics.pipelines.progress import Lines
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.pipelines.sessions import Sessions

path, url = sys.argv[1:]
commits, stage_commits = lake.Lake.commit, staging.Stage.commit
counts = {"lake": 0, "route": 0}
archive.FIRST_FILE_RECORDS = 30

def hang(what):
    print(what, flush=True)
    time.sleep(600)

def commit(self, *args):
    counts["lake"] += 1
    if counts["lake"] == 2:
        hang("files written")
    commits(self, *args)

def stage_commit(self, *args):
    counts["route"] += 1
    stage_commits(self, *args)
    if counts["route"] == 2:
        hang("stage committed")

lake.Lake.commit, staging.Stage.commit = commit, stage_commit
declaration = load(Path(path))
sessions = Sessions("killed", "local[2]", log=Path(declaration.state) / "spark.log")
view = Lines(sys.stderr, as_json=False, pause_s=60)
Runner(Server(url), Path(declaration.state), sessions, view).run(declaration.chosen([]))
"""

DECLARATION = """
state = "{folder}/state"

[pipeline.lake]
kind = "archive"
topics = ["{topic}.a"]
table = "{folder}/lake"
every_s = 0
trim = true

[pipeline.copy]
kind = "route"
topics = ["{topic}.b"]
into = "{topic}.copy"
sql = "SELECT data FROM records"
max_records = 30
"""
COUNT = 100


@pytest.mark.timeout(400)
def test_killed_between_writing_and_noting(server: Server, topic: str, tmp_path: Path) -> None:
    declaration = tmp_path / "pipelines.toml"
    declaration.write_text(DECLARATION.format(folder=tmp_path, topic=topic))
    source, table = f"{topic}.a", str(tmp_path / "lake")
    server.append(source, *range(COUNT))
    server.append(f"{topic}.b", *range(COUNT))
    kill_in_the_middle(server, declaration)
    committed = Lake(table).archived(source, server.state(source)["epoch"])
    assert committed is not None
    assert 0 < committed < COUNT
    assert len(list(Path(table).glob("*.parquet"))) > len(Lake(table).file_paths()), "files without a commit"
    # Nothing was trimmed that is not in the lake.
    assert server.state(source)["earliest_seq"] == committed + 1
    assert server.state(f"{topic}.copy")["head_seq"] == 60
    finish(server, declaration)
    rows = Lake(table).records.to_pyarrow_table().sort_by("seq").to_pydict()
    assert rows["seq"] == list(range(1, COUNT + 1))
    assert [int(text) for text in rows["data"]] == list(range(COUNT))
    assert Lake(table).gaps() == []
    assert server.state(source)["earliest_seq"] == COUNT + 1
    assert [record["data"] for record in server.diff(f"{topic}.copy")[0]] == list(range(COUNT))


def kill_in_the_middle(server: Server, declaration: Path) -> None:
    with (declaration.parent / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(declaration), server.url],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert driver.stdout is not None
    try:
        said = {driver.stdout.readline().strip(), driver.stdout.readline().strip()}
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    assert said == {"files written", "stage committed"}, (declaration.parent / "driver.log").read_text()


def finish(server: Server, declaration: Path) -> None:
    """As a user would, with a Spark of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "pipeline", "run", str(declaration), "--once", "--json"],
        env={**os.environ, "TOPICS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = {line["pipeline"]: line for line in lines if "ok" in line}
    assert results["lake"]["ok"]
    assert results["copy"]["ok"]
    assert any(line.get("state") == "running" for line in lines)
