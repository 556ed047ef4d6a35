"""docs/operations.md: every command works as it stands."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.docs.examples import ROOT, check_answer, examples, run_bash
from tests.support import ServerProcess
from topics.cli import backup, check, compact, restore

PAGE = ROOT / "docs" / "operations.md"


def test_examples_in_order(server: ServerProcess, tmp_path: Path) -> None:
    server.post("/v0/topics/log", {"records": [{"data": n, "tag": f"k{n}"} for n in range(20)]})
    server.post("/v0/topics/log/delete", {"match": "k1*"})
    found = examples(PAGE, "bash")
    assert len(found) >= 6
    for example in found:
        setup = f'cd "{tmp_path}"\nexport TOPICS_URL="$TOPICS"\n'
        output = run_bash(setup + example.code, server)
        check_answer(example, output)
    assert (tmp_path / "restored" / "snapshots").is_dir()


def test_every_verb_and_option_is_named() -> None:
    """The page names what the parsers take, apart from what every verb has."""
    verbs = argparse.ArgumentParser().add_subparsers()
    for verb in (backup, check, compact, restore):
        verb.add_parser(verbs)
    text = PAGE.read_text()
    for name, parser in verbs.choices.items():
        assert f"topics {name}" in text
        for action in parser._actions:
            for option in action.option_strings:
                assert option in ("-h", "--help") or option in text, f"{name} {option}"
