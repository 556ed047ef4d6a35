"""docs/sdk.md: its programs run as shown, a strict type checker accepts them, and no name is missing."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from mypy import api
from scripts.sdk_reference import CLASSES, reference

import topics
from tests.docs.examples import ROOT, Example, examples_in
from topics.testing import TopicsServer

PAGE = ROOT / "docs/sdk.md"
TESTED_APART = "Testing your consumer"


def sections() -> dict[str, list[Example]]:
    """A section is a program: its examples follow each other."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        python = examples_in(text, "python")
        if python:
            found[title] = python
    return found


@pytest.fixture(scope="module")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicsServer]:
    """One for the whole page: sections keep to topics of their own."""
    server = TopicsServer(tmp_path_factory.mktemp("page"))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("title", [title for title in sections() if title != TESTED_APART])
def test_examples_print_what_is_shown(
    title: str, page_server: TopicsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_URL", page_server.url)
    monkeypatch.chdir(tmp_path)
    # Annotations of classes are looked up in their module.
    program = ModuleType("example_program")
    monkeypatch.setitem(sys.modules, program.__name__, program)
    for example in sections()[title]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.code, f"{PAGE.name}: {title}", "exec"), program.__dict__)
        assert printed.getvalue() == example.answer, example.code
    program.__dict__.clear()


def test_the_fixture_is_there_for_users(tmp_path: Path) -> None:
    (example,) = sections()[TESTED_APART]
    (tmp_path / "test_consumer.py").write_text(example.code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "topics.testing", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_strict_type_checker_accepts_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    files = []
    for number, blocks in enumerate(sections().values()):
        files.append(tmp_path / f"section_{number}.py")
        files[-1].write_text("\n".join(block.code for block in blocks))
    options = ["--strict", "--python-version=3.11", "--explicit-package-bases", "--namespace-packages"]
    # pyarrow has no types.
    output, errors, status = api.run([*options, "--disable-error-code=import-untyped", *map(str, files)])
    assert status == 0, output + errors


def test_every_name_has_an_example() -> None:
    shown = "\n".join(example.code for blocks in sections().values() for example in blocks)
    words = set(re.findall(r"\w+", shown))
    # Tables of pandas and polars need what is not installed here; the text has them.
    words |= {"to_pandas", "to_polars"} & set(re.findall(r"\w+", PAGE.read_text()))
    names = {name for name in topics.__all__ if not name.startswith(("Async", "__"))}
    methods = {
        name
        for kind in CLASSES
        for name, _ in inspect.getmembers(getattr(topics, kind))
        if not name.startswith("_") and not issubclass(getattr(topics, kind), topics.Cursor)
    }
    taken_from_objects = {"Topic", "Queue", "Writer", "Worker", "Answer", "Accepted", "Ack"}
    assert sorted((names - taken_from_objects | methods) - words) == []


def test_the_reference_is_made_from_the_code() -> None:
    assert (ROOT / "docs/sdk-reference.md").read_text() == reference(), "run python scripts/sdk_reference.py"


def test_importing_is_cheap() -> None:
    code = (
        "import sys, topics; before = set(sys.modules); topics.Topics;"
        "print(sorted(m for m in sys.modules if m.startswith('topics') and m.split('.')[1:2] not in"
        " ([], ['client'], ['core'], ['compiled'])), 'asyncio' in sys.modules, 'pyarrow' in sys.modules,"
        " [m for m in before if m.startswith('topics.') and m != 'topics.compiled'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[] False False []"
