"""docs/cli.md: every command works as it stands; docs/cli-reference.md: it says what the parsers say."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.cli.command import topics
from tests.docs.examples import ROOT, check_answer, examples, run_bash
from tests.support import ServerProcess
from topics.cli.main import VERBS

PAGE = ROOT / "docs" / "cli.md"
# Their examples are on other pages, which have tests of their own.
ELSEWHERE = {"serve", "up", "pipeline", "backup", "restore", "check", "compact"}


def run_lines(code: str, server: ServerProcess, folder: Path) -> str:
    """What a shell does, in its place: to start forty processes takes longer than all they do."""
    output = ""
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "topics" and not {"|", "||"} & set(words):
            done = topics(*words[1:], TOPICS_URL=server.url)
            assert done.code == 0, done.errors
            output += done.output
        else:
            patient = 'topics() { command topics "$@" --wait 60; }'
            output += run_bash(f'cd "{folder}"\nexport TOPICS_URL="$TOPICS"\n{patient}\n{line}', server)
    return output


@pytest.mark.timeout(300)
def test_examples_in_order(server: ServerProcess, tmp_path: Path) -> None:
    for example in examples(PAGE, "bash"):
        output = run_lines(example.code, server, tmp_path)
        if example.answer_kind == "text":
            # The time is another one every time.
            assert re.sub(r'"ts":\d+', '"ts":1767225600000', output) == example.answer
        elif example.answer_kind:
            check_answer(example, output)


def test_every_verb_has_an_example() -> None:
    code = "\n".join(example.code for example in examples(PAGE, "bash"))
    for verb in {verb for verbs in VERBS.values() for verb in verbs} - ELSEWHERE - {"config"}:
        assert re.search(rf"\btopics {verb}\b", code), verb
    assert "topics config visits" in code
    for action in ("push", "claim", "ack", "nack", "peek", "leases", "redrive"):
        assert f"topics queue {action}" in code
    for action in ("add", "list", "drop"):
        assert f"topics route {action}" in code


def sections(text: str) -> dict[str, str]:
    """What a reference says of each verb; those of pipelines have a page of their own."""
    found = {part.partition("\n")[0]: part for part in text.split("\n### ")[1:]}
    return {name: part for name, part in found.items() if not name.startswith("topics pipeline")}


def test_the_reference_is_what_the_code_says() -> None:
    path = ROOT / "scripts" / "command_reference.py"
    said = sections((ROOT / "docs" / "cli-reference.md").read_text())
    for name, text in sections(runpy.run_path(str(path))["reference"]()).items():
        assert said.pop(name, None) == text, f"{name}: run scripts/command_reference.py"
    assert not said
