"""Drivers killed at the worst moment, and started again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_topics.offsets import Position
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import write_files
from tests.spark.pipelines.lakes import records
from tests.spark.server import Server

# Each pipeline gets through its first step. In a later one, the archive hangs when its files are written and
# nothing is committed; the others when the server has everything, and has not noted that yet.
DRIVER = """
import sys, time
from pathlib import Path
from pyspark_topics.pipelines import archive, jobs, lake, load, micro_batches, replay
from pyspark_topics.options import Server
from pyspark_topics.pipelines.declaration import read_declaration
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.pipelines.terminal import Lines
from pyspark_topics.session import SharedSession

path, url = sys.argv[1:]
commits, route_commits, notes = lake.Lake.commit, micro_batches.RunningRoute._commit, jobs.Job.note
counts = {"lake": 0, "route": 0}
archive.FIRST_FILE_RECORDS, replay.STEP_SEQS = 30, 10
load.SPLIT_BYTES, load.COMMIT_BYTES = 50, 100

def hang(what):
    print(what, flush=True)
    time.sleep(600)

def commit(self, *args):
    counts["lake"] += 1
    if counts["lake"] == 2:
        hang("files written")
    commits(self, *args)

def route_commit(self, *args):
    counts["route"] += 1
    route_commits(self, *args)
    if counts["route"] == 2:
        hang("stage committed")

def note(self, *, step, at, finished=False):
    if step > self.step > 1:
        hang(f"{self.path.parent.name} committed")
    notes(self, step=step, at=at, finished=finished)

lake.Lake.commit, micro_batches.RunningRoute._commit, jobs.Job.note = commit, route_commit, note
declaration = read_declaration(Path(path))
session = SharedSession("killed", "local[2]", log=Path(declaration.state) / "spark.log")
display = Lines(sys.stderr, as_json=False, pause_s=60)
Runner(Server(url), Path(declaration.state), session, display).run(declaration.pipelines)
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

[pipeline.history]
kind = "load"
files = ["{folder}/history.json"]
into = "{topic}.history"

[pipeline.again]
kind = "replay"
table = "{folder}/old"
topic = "old"
into = "{topic}.again"
"""
NAMES = ("lake", "copy", "history", "again")
COUNT = 100


@pytest.mark.timeout(700)
def test_killed_between_writing_and_noting(server: Server, topic: str, tmp_path: Path) -> None:
    declaration = tmp_path / "pipelines.toml"
    declaration.write_text(DECLARATION.format(folder=tmp_path, topic=topic))
    source, table = f"{topic}.a", str(tmp_path / "lake")
    server.append(source, *range(COUNT))
    server.append(f"{topic}.b", *range(COUNT))
    (tmp_path / "history.json").write_text("".join(f"{n}\n" for n in range(COUNT)))
    old = Lake(str(tmp_path / "old"))
    old.commit(list(write_files([records(1, COUNT, "old")], old.path)), {}, {"old": Position(COUNT, 1)}, [])
    kill_in_the_middle(server, declaration)
    committed = Lake(table).archived(source, server.state(source)["epoch"])
    assert committed is not None
    assert 0 < committed < COUNT
    assert len(list(Path(table).glob("*.parquet"))) > len(Lake(table).file_paths()), "files without a commit"
    # Nothing was trimmed that is not in the lake.
    assert server.state(source)["earliest_seq"] == committed + 1
    for name in ("copy", "history", "again"):
        assert 0 < server.state(f"{topic}.{name}")["head_seq"] < COUNT, name
    finish(server, declaration)
    rows = Lake(table).records.to_pyarrow_table().sort_by("seq").to_pydict()
    assert rows["seq"] == list(range(1, COUNT + 1))
    assert [int(text) for text in rows["data"]] == list(range(COUNT))
    assert Lake(table).gaps() == []
    assert server.state(source)["earliest_seq"] == COUNT + 1
    assert server.data(f"{topic}.copy") == list(range(COUNT))
    assert server.data(f"{topic}.history") == list(range(COUNT))
    assert server.data(f"{topic}.again") == list(range(1, COUNT + 1))


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
        said = {driver.stdout.readline().strip() for _ in NAMES}
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    expected = {"files written", "stage committed", "history committed", "again committed"}
    assert said == expected, (declaration.parent / "driver.log").read_text()


def finish(server: Server, declaration: Path) -> None:
    """As a user would, with a Spark of its own."""
    command = ["pipeline", "run", str(declaration), *NAMES, "--once", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", *command],
        env={**os.environ, "TOPICS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = {line["pipeline"]: line for line in lines if "ok" in line}
    assert {name for name in NAMES if results[name]["ok"]} == set(NAMES)
    assert any(line.get("state") == "running" for line in lines)
