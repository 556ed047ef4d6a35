"""docs/configuration.md has a row for every setting, with the default that the code has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from tests.cli.command import topics
from tests.docs.examples import ROOT, check_answer, examples, run_bash
from topics.core.settings import Settings
from topics.core.settings_reader import CLIENT_VARIABLES, variable

PAGE = ROOT / "docs" / "configuration.md"
DOCUMENT = PAGE.read_text()
# Defaults that depend on the machine are told in words.
IN_WORDS = {
    "TOPICS_WAL_SHARDS": "number of CPUs, at most 8",
    "TOPICS_TEST_MIN_HEARTBEAT_MS": "unset",
    "TOPICS_DISK_RESERVE_BYTES": "chosen by the server",
}


def documented() -> dict[str, str]:
    return dict(re.findall(r"^\| `(TOPICS_\w+)` \| ([^|]+) \|", DOCUMENT, re.M))


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unset" if value in (None, "") else f"`{value}`"


def test_the_table_is_the_declaration() -> None:
    declared = {variable(known.name): shown(getattr(Settings(), known.name)) for known in fields(Settings)}
    assert documented() == declared | IN_WORDS
    assert list(documented()) == list(declared)


def test_choices_are_told() -> None:
    for known in fields(Settings):
        for word in known.metadata.get("words", ()):
            assert f"`{word}`" in DOCUMENT, variable(known.name)


def test_names_of_clients_are_told() -> None:
    for name in CLIENT_VARIABLES:
        assert f"`{name}`" in DOCUMENT


def test_the_example_of_a_file_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.S)
    (tmp_path / "topics.toml").write_text(example)
    outcome = topics("config", "--config", tmp_path / "topics.toml")
    assert outcome.code == 0, outcome.errors
    assert outcome.output.count(" file ") == len(re.findall(r"^\w+ = ", example, re.M))


def test_examples_in_order() -> None:
    for example in examples(PAGE, "bash"):
        check_answer(example, run_bash(example.code))
