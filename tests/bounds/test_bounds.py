"""Every bound has a name, a line in docs/configuration.md, and a test that reaches its end.

That every collection has one of them is looked at by tests/test_tidy.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bounds.table import COLLECTIONS, FREE, PROOFS

ROOT = Path(__file__).parents[2]


def test_every_bound_is_one_that_is_known() -> None:
    used = {bound for fields in COLLECTIONS.values() for bound in fields.values()}
    assert used <= PROOFS.keys() | set(FREE)


@pytest.mark.parametrize("bound", PROOFS)
def test_every_bound_has_a_proof(bound: str) -> None:
    path, test = PROOFS[bound]
    assert re.search(rf"^def {test}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE)


def test_the_document_lists_them_all() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    section = text.partition("## What bounds memory\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert {name.strip("`") for row in rows[2:] for name in row.split(", ")} == PROOFS.keys()
