"""Declarations: what is wrong is one sentence that names what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_topics.options import parse_timestamp
from pyspark_topics.pipelines import Archive, Declaration, Load, Replay, Route
from pyspark_topics.pipelines.declaration import (
    KINDS,
    DeclarationError,
    from_table,
    read_declaration,
    read_what_is_right,
)

ARCHIVE: dict[str, Any] = {"kind": "archive", "topics": ["orders"], "table": "lake"}
ROUTE: dict[str, Any] = {"kind": "route", "topics": ["orders"], "into": "x", "sql": "SELECT 1"}
REPLAY: dict[str, Any] = {"kind": "replay", "table": "lake", "topic": "orders", "into": "x"}


def declared(**entry: Any) -> Any:
    return from_table({"pipeline": {"it": entry}}).pipelines["it"]


def mistake(table: dict[str, Any]) -> str:
    with pytest.raises(DeclarationError) as caught:
        from_table(table)
    return str(caught.value)


def test_a_file_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.toml"
    path.write_text(
        """
        url = "http://server:4000"
        state = "/var/lib/pipelines"
        [spark]
        "spark.executor.memory" = "2g"
        "spark.speculation" = true
        [pipeline.lake]
        kind = "archive"
        topics = ["orders"]
        table = "lake"
        every_s = 5
        """
    )
    assert read_declaration(path) == Declaration(
        {"lake": Archive(topics=["orders"], table="lake", every_s=5.0)},
        url="http://server:4000",
        state="/var/lib/pipelines",
        spark={"spark.executor.memory": "2g", "spark.speculation": "true"},
    )


def test_a_file_of_python(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.py"
    path.write_text(
        "from pyspark_topics.pipelines import Archive, Declaration\n"
        "pipelines = Declaration({'lake': Archive(topics=['orders'], table='lake')})\n"
    )
    assert read_declaration(path) == Declaration({"lake": Archive(topics=["orders"], table="lake")})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"pipelines": {}}, 'the file has no setting "pipelines", did you mean "pipeline"; it knows: url, '),
        ({"url": 7}, "url has to be text"),
        ({"pipeline": 7}, "pipeline has to be a table"),
        ({"pipeline": {"it": 7}}, "pipeline it has to be a table, [pipeline.it]"),
        ({"pipeline": {"it": {}}}, "pipeline it says no kind; the kinds are: archive, "),
        (
            {"pipeline": {"it": {"kind": "archiv"}}},
            'pipeline it is of kind "archiv"; the kinds are: archive, ',
        ),
        (
            {"pipeline": {"it": {**ARCHIVE, "tabel": 1}}},
            'no setting "tabel", did you mean "table"; it knows: ',
        ),
        ({"pipeline": {"it": {"kind": "archive", "topics": ["a"]}}}, 'pipeline it lacks "table"'),
        (
            {"pipeline": {"it": {**ARCHIVE, "every_s": "soon"}}},
            "pipeline it: every_s: expected float, got str",
        ),
        ({"pipeline": {"it": {**ARCHIVE, "every_s": -1}}}, "every_s has to be 0 or more"),
        ({"pipeline": {"it": {**ARCHIVE, "topics": []}}}, "give either topics, "),
        ({"pipeline": {"it": {**ARCHIVE, "pattern": "x"}}}, "give either topics, "),
        (
            {"pipeline": {"it": {**ARCHIVE, "topics": [], "pattern": "("}}},
            "pattern is not a regular expression",
        ),
        ({"pipeline": {"it": {**ROUTE, "mode": "apend"}}}, "mode: it has to be append, update or complete"),
        ({"pipeline": {"it": {**ROUTE, "python": "a.py:f"}}}, "give either sql or python"),
        ({"pipeline": {"it": {**ROUTE, "sql": None, "python": "a.py:f"}}}, "there is no such file"),
        ({"pipeline": {"it": {**ROUTE, "sql": None, "python": "a.py"}}}, 'has to be like "routes.py:enrich"'),
        ({"pipeline": {"it": {"kind": "route", "topics": ["a"], "sql": "SELECT 1"}}}, "announced somewhere"),
        ({"pipeline": {"it": {**ARCHIVE, "topics": ["a b"]}}}, 'a topic cannot be called "a b"'),
        ({"pipeline": {"it": {**ROUTE, "into": "a/b"}}}, 'a topic cannot be called "a/b"'),
        ({"pipeline": {"it": {**ROUTE, "losses_into": ""}}}, 'a topic cannot be called ""'),
        ({"pipeline": {"it": {**ROUTE, "into": ROUTE["topics"][0]}}}, "it would read what it writes"),
        ({"pipeline": {"it": {**ROUTE, "topics": [], "pattern": ".*"}}}, "it would read what it writes"),
        ({"pipeline": {"it": {**ARCHIVE, "table": "ftp://host/lake"}}}, "has to be a folder, or at s3://"),
        ({"pipeline": {"it": {"kind": "audit", "table": ""}}}, "has to be a folder, or"),
        ({"pipeline": {"it": {"kind": "erase", "tag": "x", "tables": ["s3://"]}}}, "a folder, or at"),
        ({"pipeline": {"it": {"kind": "erase", "tag": "x", "pattern": "("}}}, "not a regular expression"),
        ({"pipeline": {"it": {**REPLAY, "since": "noon"}}}, "Unix milliseconds"),
        ({"pipeline": {"it": {**REPLAY, "into": "a b"}}}, 'a topic cannot be called "a b"'),
        ({"pipeline": {"it": {"kind": "load", "files": [], "into": "b"}}}, "files has to say what to load"),
        ({"pipeline": {"a b": ARCHIVE}}, 'a pipeline cannot be called "a b"'),
        ({"spark": {"executor": {"memory": "2g"}}}, 'write "executor" of [spark] in quotes'),
        ({"storage": {"aws_regoin": "x"}}, 'storage has no option "aws_regoin", did you mean "aws_region"'),
    ],
)
def test_mistakes(table: dict[str, Any], says: str) -> None:
    message = mistake(table)
    assert says in message
    assert "\n" not in message


def test_mistakes_in_files(tmp_path: Path) -> None:
    def says(name: str, text: str | None) -> str:
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(DeclarationError) as caught:
            read_declaration(tmp_path / name)
        return str(caught.value)

    assert "No such file" in says("a.toml", None)
    assert "there is no such file" in says("a.py", None)
    assert "this is not TOML" in says("b.toml", "[pipeline")
    assert "has to set pipelines = Declaration(...)" in says("c.py", "x = 1")
    assert "running it failed with ZeroDivisionError" in says("d.py", "1 / 0")
    assert "every_s has to be" in says(
        "e.py", "from pyspark_topics.pipelines import Archive\nArchive(topics=['a'], table='t', every_s=-1)"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("Archive(topics='orders', table='t')", "pipeline it: topics: expected array, got str"),
        ("Route(topics=['a'], into='b', sql='x', mode='apend')", "mode: it has to be append, update or"),
        ("Route(topics=['a'], into='b', python='no.py:f')", "no.py, and there is no such file"),
        ("Archive", "pipeline it has to be one of: Archive(...), "),
        ("{'kind': 'archive'}", "pipeline it has to be one of: Archive(...), "),
    ],
)
def test_python_is_held_to_the_same_rules(tmp_path: Path, given: str, says: str) -> None:
    path = tmp_path / "pipelines.py"
    path.write_text(f"from pyspark_topics.pipelines import *\npipelines = Declaration({{'it': {given}}})\n")
    with pytest.raises(DeclarationError) as caught:
        read_declaration(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_a_store_are_looked_at_in_python_too(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.py"
    path.write_text(
        "from pyspark_topics.pipelines import *\npipelines = Declaration({}, storage={'regoin': '1'})"
    )
    with pytest.raises(DeclarationError, match=r'storage has no option "regoin", did you mean "region"'):
        read_declaration(path)
    assert len(read_what_is_right(path)[1]) == 1


def test_paths_may_be_paths_in_python(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.py"
    path.write_text(
        "from pathlib import Path\nfrom pyspark_topics.pipelines import *\n"
        "pipelines = Declaration({'it': Load(files=[Path('a.csv')], into='b')})\n"
    )
    assert read_declaration(path).pipelines["it"] == Load(files=["a.csv"], into="b")


@pytest.mark.parametrize(
    "since", ["1767225600000", '"1767225600000"', "2026-01-01T00:00:00Z", '"2026-01-01"', "2026-01-01"]
)
def test_times_are_written_as_numbers_times_or_text(tmp_path: Path, since: str) -> None:
    path = tmp_path / "pipelines.toml"
    settings = 'kind = "replay"\ntable = "t"\ntopic = "a"\ninto = "b"'
    path.write_text(f"[pipeline.it]\n{settings}\nsince = {since}\n")
    replay = read_declaration(path).pipelines["it"]
    assert isinstance(replay, Replay)
    assert parse_timestamp(str(replay.since)) == 1_767_225_600_000


IN_TOML = '[pipeline.it]\nkind = "route"\ntopics = ["a"]\ninto = "b"\npython = "routes.py:enrich"\n'
IN_PYTHON = """
from pyspark_topics.pipelines import Declaration, Route
pipelines = Declaration({"it": Route(topics=["a"], into="b", python="routes.py:enrich")})
"""


@pytest.mark.parametrize(("name", "text"), [("pipelines.toml", IN_TOML), ("pipelines.py", IN_PYTHON)])
def test_code_is_looked_for_beside_the_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "routes.py").write_text("def enrich(records):\n    return records\n")
    (tmp_path / name).write_text(text)
    route = read_declaration(tmp_path / name).pipelines["it"]
    assert isinstance(route, Route)
    with pytest.raises(ValueError, match="has no function nothing"):
        Route(topics=["a"], into="b", python="routes.py:nothing", _folder=str(tmp_path))


def test_python_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "names_beside.py").write_text("TOPICS = ['orders']\n")
    path = tmp_path / "pipelines.py"
    path.write_text(
        "from names_beside import TOPICS\n"
        "from pyspark_topics.pipelines import Archive, Declaration\n"
        "pipelines = Declaration({'lake': Archive(topics=TOPICS, table='lake')})\n"
    )
    assert read_declaration(path) == Declaration({"lake": Archive(topics=["orders"], table="lake")})


def test_without_names_what_follows_runs_and_jobs_wait() -> None:
    lake, route = declared(**ARCHIVE), declared(**ROUTE)
    job = Load(files=["x"], into="y")
    declaration = Declaration({"lake": lake, "job": job, "route": route})
    assert list(declaration.chosen([])) == ["lake", "route"]
    assert list(declaration.chosen(["job", "lake"])) == ["job", "lake"]
    assert list(Declaration({"job": job}).chosen([])) == ["job"]
    with pytest.raises(DeclarationError, match="a job, which runs when it is named: job, other"):
        Declaration({"job": job, "other": job}).chosen([])
    with pytest.raises(DeclarationError, match='there is no pipeline "lak"; declared are: lake, job, route'):
        declaration.chosen(["lak"])


def test_every_kind_says_what_it_is() -> None:
    for word, kind in KINDS.items():
        assert kind.kind == word
        assert isinstance(kind.follows, bool)


def test_every_mistake_of_a_pipeline_is_found(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[pipeline.a]\nkind = "archive"\ntopics = [1]\ntabel = "t"\nevry_s = 2\ntrim = "yes"\n'
        '[pipeline.b]\nkind = "replay"\ntopic = "t"\n'
    )
    _, wrong = read_what_is_right(file)
    assert [line.partition("; it knows")[0] for line in wrong] == [
        'pipeline a has no setting "tabel", did you mean "table"',
        'pipeline a has no setting "evry_s", did you mean "every_s"',
        "pipeline a: topics[0]: expected str, got int",
        "pipeline a: trim: expected bool, got str",
        'pipeline b lacks "table"',
        'pipeline b lacks "into"',
    ]
