"""What a strict type checker accepts and refuses; both surfaces have the same names and arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from mypy import api

import topics
from tests.support.sources import ROOT

USES = Path(__file__).with_name("typed") / "uses.py"
PAIRS = [
    (topics.Topics, topics.AsyncTopics),
    (topics.Topic, topics.AsyncTopic),
    (topics.Queue, topics.AsyncQueue),
    (topics.Writer, topics.AsyncWriter),
    (topics.Job, topics.AsyncJob),
    (topics.Worker, topics.AsyncWorker),
]


def test_wrong_uses_are_refused_and_right_ones_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    monkeypatch.chdir(ROOT)
    lines = USES.read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}
    output, _, _ = api.run(
        [
            "--strict",
            "--python-version",
            "3.11",
            "--explicit-package-bases",
            "--namespace-packages",
            str(USES),
        ]
    )
    found = {int(number) for number in re.findall(rf"{USES.name}:(\d+): error", output)}
    assert found == expected, output


@pytest.mark.parametrize(("blocking", "on_asyncio"), PAIRS)
def test_both_surfaces_have_the_same_names_and_arguments(blocking: type, on_asyncio: type) -> None:
    def shape(kind: type) -> dict[str, Any]:
        return {
            name: [(one.name, one.kind, one.default) for one in inspect.signature(value).parameters.values()]
            if callable(value)
            else None
            for name, value in inspect.getmembers(kind)
            if not name.startswith("_")
        }

    assert shape(blocking) == shape(on_asyncio)


def test_names_are_the_same_for_programs_and_for_type_checkers() -> None:
    stub = (ROOT / "src/topics/__init__.pyi").read_text()
    assert sorted(re.findall(r"import (\w+) as \1", stub)) == sorted(set(topics.__all__) - {"__version__"})
    for name in topics.__all__:
        assert getattr(topics, name) is not None
    with pytest.raises(AttributeError):
        _ = topics.Nothing
