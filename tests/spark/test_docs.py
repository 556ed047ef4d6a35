"""docs/spark.md: its Python runs, and prints what it says; its tables name every option and column."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_topics import options, rows
from tests.docs.examples import ROOT, examples, table
from tests.spark.server import Server

DOCUMENT = ROOT / "docs" / "spark.md"


# The first query of a session takes long where others use the machine, too.
@pytest.mark.timeout(300)
def test_examples_in_order(spark: SparkSession, start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server()
    server.configure("recent", cap_records=3)
    server.append("recent", 1, 2, 3, 4, 5)
    names: dict[str, Any] = {}
    blocks = examples(DOCUMENT, "python")
    assert blocks
    for block in blocks:
        code = block.code.replace("http://127.0.0.1:4000", server.url).replace(
            "/tmp/topics-spark", str(tmp_path)
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(DOCUMENT), "exec"), names)
        if block.answer_kind:
            assert printed.getvalue().strip() == block.answer.strip()


def first_column(header: str, below: str) -> list[str]:
    return [name.strip().strip("`") for row in table(DOCUMENT, header, below) for name in row[0].split(",")]


def test_every_option_is_documented() -> None:
    assert first_column("Option", "## Write") == [*options.WRITE]
    assert first_column("Option", "## Read") == [*options.READ]


def test_every_column_is_documented() -> None:
    assert first_column("Column", "## Write") == [*rows.COLUMNS]
    assert first_column("Column", "## Read") == [*rows._TYPES]
