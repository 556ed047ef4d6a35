"""The examples in our documents: found, run, and compared with the answers printed below them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import ServerProcess

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n\n^```(json|text)\n(.*?)^```$)?", re.S | re.M)
# What no two runs have in common. Such a value is compared by its type.
_VARYING = (
    "$ts",
    "age_ms",
    "deadline",
    "epoch",
    "expires_ms",
    "free_bytes",
    "last_read_ts",
    "lease_id",
    "purge",
    "reserve_bytes",
    "snapshot",
    "started_ms",
    "since_ms",
    "updated_ts",
    "uptime_ms",
)
TIMEOUT_S = 60


@dataclass(frozen=True)
class Example:
    language: str
    code: str
    # What the document shows right below: JSON values or lines of text, or nothing.
    answer_kind: str
    answer: str


def named(path: Path) -> str:
    """The name of a document, for parametrized tests."""
    return str(path.relative_to(ROOT))


def examples(path: Path, language: str) -> list[Example]:
    return examples_in(path.read_text(), language)


def examples_in(text: str, language: str) -> list[Example]:
    found = (Example(*(part or "" for part in groups)) for groups in _BLOCK.findall(text))
    return [example for example in found if example.language == language]


def run_bash(
    code: str, server: ServerProcess | None = None, folder: Path | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """In a shell of its own that stops at the first command that fails; nothing it started outlives it."""
    address = {"TOPICS": f"http://{server.address}"} if server else {}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env={
            **inherited,
            **address,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert shell.returncode == 0, output + errors
    return output


def check_answer(example: Example, output: str) -> None:
    """What is printed last has to be what the document shows; it may show less than there is."""
    if not example.answer_kind:
        assert '"error"' not in output
    elif example.answer_kind == "json":
        shown, printed = list(json_values(example.answer)), list(json_values(output))
        assert len(printed) >= len(shown), output
        for expected, actual in zip(shown, printed[-len(shown) :], strict=True):
            assert_shown(expected, actual)
    else:
        shown_lines, lines = example.answer.strip().split("\n"), output.strip().split("\n")
        assert len(shown_lines) == len(lines), output
        for expected_line, line in zip(shown_lines, lines, strict=True):
            _assert_line(expected_line, line)


def _assert_line(expected: str, actual: str) -> None:
    prefix = "data: "
    if expected.startswith(prefix):
        assert actual.startswith(prefix)
        assert_shown(json.loads(expected[len(prefix) :]), json.loads(actual[len(prefix) :]))
    else:
        assert actual == expected


def json_values(text: str) -> Iterator[Any]:
    """JSON values one after the other, as curl leaves them."""
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text.rstrip()):
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        yield value


def assert_shown(expected: Any, actual: Any, where: str = "") -> None:
    """Everything shown is there. Objects may have more keys than are shown, lists no more elements."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict), f"{where}: {actual!r} is no object"
        for key, value in expected.items():
            assert key in actual, f"{where}: there is no {key} in {actual!r}"
            if key in _VARYING:
                assert type(actual[key]) is type(value), f"{where}.{key}: {actual[key]!r}"
            else:
                assert_shown(value, actual[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(actual, list), f"{where}: {actual!r} is no list"
        assert len(actual) == len(expected), f"{where}: {actual!r}"
        for index, value in enumerate(expected):
            assert_shown(value, actual[index], f"{where}[{index}]")
    else:
        assert actual == expected, f"{where}: {actual!r} instead of {expected!r}"
        assert type(actual) is type(expected), f"{where}: {actual!r} instead of {expected!r}"


def table(path: Path, first_header: str, below: str = "# ") -> list[list[str]]:
    """The rows of the first table below a title whose first column is called so, cell by cell."""
    _, title, text = path.read_text().partition(below)
    assert title, below
    start = re.search(rf"^\| {re.escape(first_header)} \|.*\n\|[-|]+\n", text, re.M)
    assert start is not None, first_header
    lines = text[start.end() :].split("\n\n", 1)[0].strip().split("\n")
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
