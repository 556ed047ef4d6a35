"""A lab to back up, and what comes back from its backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.command import Outcome, topics
from tests.engine.lab import NodeLab
from tests.log.harness import Lab
from topics.log.read.render import Shape

TAGGED = Shape(tags=True)


def lab_in(directory: Path, **settings: Any) -> Lab:
    return Lab(directory / "data", **settings)


def content(lab: Lab) -> dict[str, Any]:
    """Everything but the epochs."""
    found = {}
    for name in lab.engine.names_after("", ""):
        state = lab.state(name)
        del state["epoch"]
        found[name] = (state, lab.diff(name, shape=TAGGED).rows, lab.diff(name).rows)
    return found


def backup(directory: Path, *arguments: object) -> Outcome:
    outcome = topics("backup", directory / "backups", "--data-dir", directory / "data", "--json", *arguments)
    assert outcome.code == 0, outcome.errors
    return outcome


def restore(directory: Path, target: str, *arguments: object) -> NodeLab:
    outcome = topics("restore", directory / "backups", directory / target, "--json", *arguments)
    assert outcome.code == 0, outcome.errors
    return NodeLab(directory / target)


def fill(lab: Lab, topic: str = "t", count: int = 11) -> None:
    for number in range(count):
        lab.clock.advance(1000)
        lab.write(topic, {"data": number, "tag": f"k{number % 3}", "node": "n", "meta": {"m": number}})
