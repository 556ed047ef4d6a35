"""The README's commands work as they stand, and every setting is documented."""

from __future__ import annotations

import re
from dataclasses import fields

from tests.docs.examples import ROOT, examples, run_bash
from tests.support import ServerProcess
from topics.values.settings import Settings


def test_tour(server: ServerProcess) -> None:
    writing, losing = examples(ROOT / "README.md", "bash")
    output = run_bash(writing.code, server)
    assert '"error"' not in output
    assert '"data":"late"' in output
    assert '"deleted":1' in output
    output = run_bash(losing.code, server)
    assert '"error"' not in output
    assert '"gap_from":1,"gap_to":2,"reason":"cap"' in output


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"`(TOPICS_[A-Z_]+)`", (ROOT / "docs/configuration.md").read_text()))
    assert documented == {"TOPICS_" + field.name.upper() for field in fields(Settings)}
