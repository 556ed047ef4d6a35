"""`topics pipeline check`: every mistake on a line of its own, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.pipelines import Load, Route
from pyspark_topics.pipelines.context import Check
from pyspark_topics.pipelines.declaration import read_what_is_right
from pyspark_topics.pipelines.state import StoredPath
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)

WRONG = """
[pipeline]
typo = {{kind = "archive", topics = ["{topic}.ordres"], table = "{folder}/lake"}}
setting = {{kind = "archive", topics = ["orders"], tabel = "lake"}}
query = {{kind = "route", topics = ["later"], into = "out", sql = "SELECT nothing FROM records"}}
null = {{kind = "route", topics = ["later"], into = "out", sql = "SELECT 7 AS data FROM records"}}
other = {{kind = "archive", topics = ["later"], table = "{folder}/other"}}
forget = {{kind = "erase", tag = "a", tables = ["{folder}/none"]}}
again = {{kind = "replay", table = "{folder}/none", topic = "orders", into = "again"}}
never = {{kind = "replay", table = "{folder}/lake", topic = "orders", into = "again"}}

[pipeline.columns]
kind = "route"
topics = ["later"]
into = "out"
schema = "a STRNG"
sql = "SELECT data FROM records"

[pipeline.join]
kind = "route"
topics = ["later"]
into = "out"
sql = "SELECT data FROM records"
tables = {{prices = "{folder}/nowhere"}}

[pipeline.sums]
kind = "route"
topics = ["later"]
into = "out"
sql = "SELECT tag, count(*) AS n FROM records GROUP BY tag"

[pipeline.time]
kind = "route"
topics = ["later"]
into = "out"
event_ts = "to_timestamp(nothing)"
sql = "SELECT data FROM records"

[pipeline.late]
kind = "route"
topics = ["later"]
into = "out"
watermark = "a while"
sql = "SELECT data FROM records"

[pipeline.files]
kind = "load"
files = ["{folder}/*.csv", "{folder}/*.nothing"]
into = "loaded"
select = ["nothing AS data"]
"""

RIGHT = """
[pipeline]
lake = {{kind = "archive", topics = ["{topic}.orders", "not-there-yet"], table = "{folder}/lake"}}
proof = {{kind = "audit", table = "{folder}/lake"}}
forget = {{kind = "erase", tag = "a", tables = ["{folder}/lake"]}}
again = {{kind = "replay", table = "{folder}/./lake", topic = "{topic}.orders", into = "{topic}.again"}}
next = {{kind = "route", topics = ["{topic}.out"], into = "next", sql = "SELECT data FROM records"}}
files = {{kind = "load", files = ["{folder}/*.csv"], into = "loaded"}}

[pipeline.route]
kind = "route"
topics = ["{topic}.orders"]
into = "{topic}.out"
schema = "sku STRING, qty INT, at STRING"
event_ts = "to_timestamp(data.at)"
watermark = "1 minute"
mode = "update"
sql = "SELECT data.sku, sum(data.qty) AS qty FROM records JOIN names ON id = data.sku GROUP BY data.sku"
tables = {{names = "{folder}/names.csv"}}
"""


def check(text: str, spark: SparkSession, server: Server, folder: Path, topic: str) -> list[str]:
    declaration = folder / "pipelines.toml"
    declaration.write_text(text.format(folder=folder, topic=topic))
    found, wrong = read_what_is_right(declaration)
    return [*wrong, *Check(found.pipelines, Address(server.url), lambda: spark).mistakes()]


def test_every_mistake_is_told_with_its_pipeline_and_setting(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    server.configure(f"{topic}.orders")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    before = sorted(os.listdir(tmp_path))
    lines = check(WRONG, spark, server, tmp_path, topic)
    expected = (
        'pipeline setting has no setting "tabel", did you mean "table"',
        f'pipeline typo: topics: there is no topic "{topic}.ordres", did you mean "{topic}.orders"',
        "pipeline query: sql: [UNRESOLVED_COLUMN",
        'pipeline null: sql: the sink takes a string, a struct, map, array or variant as column "data"',
        f"pipeline other: table: {tmp_path}/other is a table of something else",
        f"pipeline forget: tables: there is no table at {tmp_path}/none",
        f"pipeline again: table: there is no table at {tmp_path}/none",
        f'pipeline never: topic: {tmp_path}/lake holds nothing of topic "orders"',
        "pipeline columns: schema: [UNSUPPORTED_DATATYPE]",
        f"pipeline join: tables.prices: there is no table at {tmp_path}/nowhere",
        "pipeline sums: sql: [STREAMING_OUTPUT_MODE",
        "pipeline time: event_ts: [UNRESOLVED_COLUMN",
        "pipeline late: watermark: [CANNOT_PARSE_INTERVAL]",
        f"pipeline files: files: no file matches {tmp_path}/*.nothing",
        "pipeline files: select: [UNRESOLVED_COLUMN",
    )
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning)
        assert "\n" not in line
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "pipelines.toml"])


def test_what_is_right_is_left_alone(spark: SparkSession, server: Server, topic: str, tmp_path: Path) -> None:
    server.configure(f"{topic}.orders")
    (tmp_path / "names.csv").write_text("id,name\nx,Ada\n")
    assert check(RIGHT, spark, server, tmp_path, topic) == []
    assert sorted(os.listdir(tmp_path)) == ["names.csv", "pipelines.toml"]
    names = [entry["topic"] for entry in server.ask("GET", f"/v0/topics?prefix={topic}")["topics"]]
    assert names == [f"{topic}.orders"]


def test_names_of_files_are_looked_at_as_a_load_does(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "x[1].csv").write_text("id\n1\n")
    for name in ("_SUCCESS", "_a.csv", "b:c.csv", "d:e.csv"):
        (tmp_path / name).write_text("id\n1\n")
    load = Load(files=[str(tmp_path / "*.csv"), str(tmp_path / "_a.csv"), str(tmp_path / "_S*")], into="t")
    lines = list(Check({"it": load}, Address(server.url), lambda: spark).mistakes())
    beginnings = (
        f"{tmp_path}/b:c.csv cannot be loaded, Spark cannot read a file with : in its name",
        f"{tmp_path}/_a.csv cannot be loaded, Spark passes over a name that begins with _",
        f"no file matches {tmp_path}/_S* but what Spark passes over, such as {tmp_path}/_SUCCESS",
    )
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(f"pipeline it: files: {beginning}")
    assert lines[0].endswith(" (and 1 more)")


def test_a_checkpoint_that_spark_does_not_reach_is_a_mistake_of_its_route(spark: SparkSession) -> None:
    route = Route(topics=["a"], into="b", sql="SELECT data FROM records")
    state = StoredPath("az://lake/state", (("account_name", "acme"),))
    nobody = Address("http://127.0.0.1:9")
    (line,) = Check({"r": route}, nobody, lambda: spark, state=state).mistakes()
    reached = "abfss://lake@acme.dfs.core.windows.net/state/r/checkpoint"
    assert line.startswith(f"pipeline r: state: Spark does not reach {reached}")


def test_a_load_with_a_schema_is_checked_by_itself(tmp_path: Path) -> None:
    """No pipeline before it has started Spark."""
    (tmp_path / "a.csv").write_text("qty\n1\n")
    declaration = tmp_path / "pipelines.toml"
    command = [sys.executable, "-m", "topics.cli.main", "pipeline", "check", str(declaration)]
    load = '[pipeline.hist]\nkind = "load"\nfiles = ["a.csv"]\ninto = "x"\nschema = "qty '
    declaration.write_text(f'{load}BIGINT"\n')
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250)
    assert done.returncode == 0, done.stderr


def test_mistakes_are_lines_and_exit_code_2(tmp_path: Path) -> None:
    """Without Spark, if there is nothing that it would have to look at."""
    declaration = tmp_path / "pipelines.toml"
    declaration.write_text('[pipeline.a]\nkind = "archive"\ntabel = 1\n[pipeline.b]\nkind = "rout"\n')
    command = [sys.executable, "-m", "topics.cli.main", "pipeline", "check", str(declaration)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith('pipeline a has no setting "tabel", did you mean "table"')
    assert second.startswith('pipeline b is of kind "rout"; the kinds are: ')
    named = subprocess.run([*command, "c"], capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert (named.returncode, 'there is no pipeline "c"' in named.stderr) == (2, True)
    assert os.listdir(tmp_path) == ["pipelines.toml"]


def test_a_mistake_of_the_file_hides_none_of_its_pipelines(tmp_path: Path) -> None:
    declaration = tmp_path / "pipelines.toml"
    declaration.write_text(
        'stat = "x"\nstate = "s4://x"\n[spark]\na.b = 1\n[storage]\naws_regoin = "x"\n'
        '[pipeline.ab]\nkind = "rout"\n'
        f'[pipeline.a]\nkind = "audit"\ntable = "{tmp_path}/lake"\n'
    )
    command = [sys.executable, "-m", "topics.cli.main", "pipeline", "check", str(declaration), "a"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert done.returncode == 2
    beginnings = (
        'the file has no setting "stat", did you mean "state"',
        'state cannot be at "s4://x"',
        'write "a" of [spark] in quotes',
        'storage has no option "aws_regoin", did you mean "aws_region"',
        'pipeline ab is of kind "rout"',
        "pipeline a: table: there is no table at",
    )
    for line, beginning in zip(done.stderr.splitlines(), beginnings, strict=True):
        assert line.startswith(beginning)


def test_spark_that_does_not_start_is_one_line_with_its_reason(tmp_path: Path) -> None:
    declaration = tmp_path / "pipelines.toml"
    route = 'kind = "route"\ntopics = ["a"]\ninto = "b"\nsql = "SELECT data FROM nothing"\n'
    declaration.write_text(f'[spark]\n"spark.master" = "nonsense"\n[pipeline.a]\n{route}')
    command = [sys.executable, "-m", "topics.cli.main", "pipeline", "check", str(declaration)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("spark: it does not start: ")
    assert "Master" in line
    assert os.listdir(tmp_path) == ["pipelines.toml"]
