"""docs/pipelines.md: its declarations are right, and its tables name every kind, setting and column."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyspark_topics.pipelines import Archive, Route
from pyspark_topics.pipelines.declaration import _TOP, KINDS, from_table, read_declaration
from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.table_schema import GAPS, RECORDS
from tests.docs.examples import ROOT, examples, table

DOCUMENT = ROOT / "docs" / "pipelines.md"


def first_column(header: str, below: str) -> list[str]:
    return [name.strip().strip("`") for row in table(DOCUMENT, header, below) for name in row[0].split(",")]


def settings(kind: type[Any]) -> dict[str, Any]:
    return {one.name: one for one in msgspec.structs.fields(kind) if not one.name.startswith("_")}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_every_setting_of_every_kind_is_documented(kind: type[Any]) -> None:
    title = f"## {kind.kind.capitalize()}"
    fields = settings(kind)
    assert first_column("Setting", title) == list(fields)
    for row in table(DOCUMENT, "Setting", title):
        for name in row[0].split(","):
            assert (row[1] == "required") == fields[name.strip().strip("`")].required, name


def test_every_kind_is_listed() -> None:
    listed = {row[0].split("`")[1]: row[3] for row in table(DOCUMENT, "Kind")}
    assert listed == {word: "follows its topics" if kind.follows else "a job" for word, kind in KINDS.items()}


def test_settings_of_the_file() -> None:
    assert first_column("Setting of the file", "## Declare") == [*_TOP]


def test_columns_of_the_lake() -> None:
    assert first_column("Column", "## Archive") == RECORDS.names
    assert first_column("Column of the gaps", "## Archive") == GAPS.names


def test_every_declaration_is_right(tmp_path: Path) -> None:
    blocks = examples(DOCUMENT, "toml")
    assert blocks
    for block in blocks:
        assert from_table(tomllib.loads(block.code)).pipelines
    python = tmp_path / "pipelines.py"
    python.write_text(examples(DOCUMENT, "python")[0].code)
    lake, route = read_declaration(python).pipelines.values()
    from_toml = from_table(tomllib.loads(blocks[0].code)).pipelines
    assert isinstance(lake, Archive)
    assert lake == from_toml["shop-lake"]
    assert isinstance(route, Route)
    assert (route.topics, route.into, route.schema) == (["orders"], "large-orders", "sku STRING, qty INT")


def test_progress_lines_have_the_fields_shown() -> None:
    (shown,) = (block for block in examples(DOCUMENT, "json") if "seconds_left" in block.code)
    assert list(msgspec.json.decode(shown.code)) == list(Progress("x", "archive").figures().as_json())


def test_the_example_file_is_right() -> None:
    assert list(read_declaration(ROOT / "examples" / "pipelines.toml").chosen([])) == [
        "shop-lake",
        "large-orders",
    ]
