"""Drivers killed at the worst moment, and started again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import TableRange, write_files
from tests.spark.pipelines.lakes import records
from tests.spark.server import Server
from tests.support.stores import S3, Store, s3a_settings

# Each pipeline gets through its first step. In a later one, the archive hangs when its files are written and
# nothing is committed; the others when the server has everything, and has not noted that yet.
DRIVER = """
import sys, time
from collections import Counter
from pathlib import Path
from pyspark_topics.pipelines import archive, load, replay
from pyspark_topics.options import ServerOptions
from pyspark_topics.pipelines.declaration import read_declaration
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.pipelines.state import state_path
from pyspark_topics.pipelines.progress import Lines
from pyspark_topics.session import SharedSession

path, url = sys.argv[1:]
archive.FIRST_FILE_RECORDS, replay.STEP_SEQS = 30, 10
load.SPLIT_BYTES, load.COMMIT_BYTES = 50, 100
hangs = {"lake written": 2, "copy committed": 2, "history committed": 3, "again committed": 3}
counts = Counter()

def step(name, reached):
    said = f"{name} {reached}"
    counts[said] += 1
    if counts[said] == hangs.get(said):
        print(said, flush=True)
        time.sleep(600)

declaration = read_declaration(Path(path))
session = SharedSession("killed", "local[2]", declaration.spark, log=Path(path).with_suffix(".log"))
display = Lines(sys.stderr, as_json=False, pause_s=60)
state = state_path(declaration.state, declaration.storage)
runner = Runner(ServerOptions(url), state, session, display, storage=declaration.storage, step=step)
runner.run(declaration.pipelines)
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
    old.commit(
        list(write_files([records(1, COUNT, "old")], old.location)), {}, {"old": StreamOffset(COUNT, 1)}, []
    )
    kill_in_the_middle(server, declaration)
    committed = Lake(table).archived(source, server.state(source)["epoch"])
    assert committed is not None
    assert 0 < committed < COUNT
    assert len(list(Path(table).glob("*.parquet"))) > len(Lake(table).files()), "files without a commit"
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


STORED = """
state = "{state}"

[storage]
{options}

[pipeline.lake]
kind = "archive"
topics = ["{topic}.a"]
table = "{table}"
every_s = 0
trim = true

[pipeline.history]
kind = "load"
files = ["{folder}/history.json"]
into = "{topic}.history"

[pipeline.again]
kind = "replay"
table = "{old}"
topic = "old"
into = "{topic}.again"
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_with_everything_in_an_object_store(
    any_store: Store, server: Server, topic: str, tmp_path: Path
) -> None:
    store = any_store
    source, table, old_table = f"{topic}.a", store.uri(f"{topic}/lake"), store.uri(f"{topic}/old")
    options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in store.options.items())
    declaration = tmp_path / "pipelines.toml"
    text = STORED.format(
        state=store.uri(f"{topic}/state"),
        options=options,
        topic=topic,
        table=table,
        folder=tmp_path,
        old=old_table,
    )
    declaration.write_text(text)
    server.append(source, *range(COUNT))
    (tmp_path / "history.json").write_text("".join(f"{n}\n" for n in range(COUNT)))
    old = Lake(old_table, store.options)
    old.commit(
        list(write_files([records(1, COUNT, "old")], old.location)), {}, {"old": StreamOffset(COUNT, 1)}, []
    )
    names = ("lake", "history", "again")
    kill_in_the_middle(server, declaration, names)
    lake = Lake(table, store.options)
    committed = lake.archived(source, server.state(source)["epoch"])
    assert committed is not None
    assert 0 < committed < COUNT
    orphans = lake.location.files(".parquet") - {one.path for one in lake.files()}
    assert orphans, "files without a commit"
    found = lake.records.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert orphans <= set(found), "a vacuum finds them"
    assert server.state(source)["earliest_seq"] == committed + 1
    # Two archives of one table go on where it stopped.
    finish(server, declaration, ("lake",), ("lake",))
    finish(server, declaration, ("history", "again"))
    lake.refresh()
    stretch = TableRange(
        lake.location, tuple(one.path for one in lake.files()), source, lake.position(source).epoch, 1, 999
    )  # type: ignore[union-attr]
    rows = stretch.read(["seq", "data"]).to_pydict()
    assert rows["seq"] == list(range(1, COUNT + 1))
    assert [int(text) for text in rows["data"]] == list(range(COUNT))
    assert lake.gaps() == []
    assert server.data(f"{topic}.history") == list(range(COUNT))
    assert server.data(f"{topic}.again") == list(range(1, COUNT + 1))


OF_SPARK = """
state = "{state}"

[storage]
{options}

[spark]
{spark}

[pipeline.copy]
kind = "route"
topics = ["{topic}.b"]
into = "{topic}.copy"
sql = "SELECT data FROM records"
max_records = 30
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_with_the_checkpoint_of_a_route_in_s3(
    server: Server, topic: str, tmp_path: Path, s3: S3
) -> None:
    declaration = tmp_path / "pipelines.toml"
    declaration.write_text(
        OF_SPARK.format(
            state=s3.uri(f"{topic}/state"),
            options="\n".join(f"{key} = {json.dumps(value)}" for key, value in s3.options.items()),
            spark="\n".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in s3a_settings(s3).items()),
            topic=topic,
        )
    )
    server.append(f"{topic}.b", *range(COUNT))
    kill_in_the_middle(server, declaration, ("copy",))
    assert 0 < server.state(f"{topic}.copy")["head_seq"] < COUNT
    kept = s3.names(f"{topic}/state/copy/checkpoint")
    assert {"metadata", "offsets/0", "offsets/1", "commits/0"} <= kept
    assert "commits/1" not in kept, "killed before Spark noted its batch"
    finish(server, declaration, ("copy",))
    assert server.data(f"{topic}.copy") == list(range(COUNT))


def kill_in_the_middle(server: Server, declaration: Path, names: tuple[str, ...] = NAMES) -> None:
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
        said = {driver.stdout.readline().strip() for _ in names}
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    expected = {f"{name} {'written' if name == 'lake' else 'committed'}" for name in names}
    assert said == expected, (declaration.parent / "driver.log").read_text()


def finish(server: Server, declaration: Path, *runs: tuple[str, ...]) -> None:
    """As a user would, with a Spark of its own; several at the same time, if told to."""
    command = [sys.executable, "-m", "topics.cli.main", "pipeline", "run", str(declaration)]
    processes = [
        subprocess.Popen(
            [*command, *names, "--once", "--json"],
            env={**os.environ, "TOPICS_URL": server.url},
            cwd=declaration.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for names in runs or (NAMES,)
    ]
    for names, process in zip(runs or (NAMES,), processes, strict=True):
        out, errors = process.communicate(timeout=400)
        assert process.returncode == 0, out + errors
        lines = [json.loads(line) for line in out.splitlines()]
        results = {line["pipeline"]: line for line in lines if "ok" in line}
        assert {name for name in names if results[name]["ok"]} == set(names)
        assert any(line.get("state") == "running" for line in lines)
