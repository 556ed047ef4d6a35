"""`topics pipeline`: mistakes, before anything of Spark is started."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from pyspark_topics.pipelines.declaration import read_declaration
from pyspark_topics.pipelines.progress import Lines
from tests.cli.command import refused, topics
from topics.cli import pipeline

FILE = """
[pipeline.lake]
kind = "archive"
topics = ["orders"]
table = "lake"

[pipeline.history]
kind = "load"
files = ["a.csv"]
into = "orders"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines.toml"
    path.write_text(FILE)
    return path


def test_a_file_is_shown(file: Path) -> None:
    shown = topics("pipeline", "list", file)
    assert shown.code == 0
    assert shown.output == "lake  archive  follows its topics\nhistory  load  a job\n"


def test_mistakes(file: Path, tmp_path: Path) -> None:
    assert "No such file" in refused("pipeline", "run", tmp_path / "nowhere.toml")
    assert 'no pipeline "lak"; declared are: lake, history' in refused("pipeline", "run", file, "lak")
    assert "not the address of a server" in refused("pipeline", "run", file, "--url", "nonsense")
    file.write_text('[pipeline.lake]\nkind = "archive"\ntopics = ["a"]\ntabel = "b"\n')
    assert 'did you mean "table"' in refused("pipeline", "list", file)


def test_an_empty_key_is_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_API_KEY", "")
    arguments = Namespace(file=file, url=None, master=None, once=True, restart=False)
    vars(arguments).update(accept=False, skip=[], again=[])
    _, runner = pipeline._prepare(
        arguments, read_declaration(file), Lines(sys.stderr, as_json=False, pause_s=0.0)
    )
    assert runner.server.api_key is None


def test_without_spark_it_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyspark_topics", "deltalake"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "pip install 'topics-log[spark]'" in refused("pipeline", "run", file)


def test_what_is_told_on_the_way_to_the_jvm_is_not_in_the_log() -> None:
    """py4j has a trace for every call that a JVM which is ending does not answer, some under no name."""
    said = [
        logging.LogRecord("root", logging.INFO, path, 1, "Exception while sending command.", None, None)
        for path in ("/x/site-packages/py4j/java_gateway.py", "/x/pyspark_topics/pipelines/runner.py")
    ]
    assert [pipeline._not_of_carriers(one) for one in said] == [False, True]
