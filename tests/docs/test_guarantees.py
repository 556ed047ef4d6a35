"""docs/guarantees.md: every test that it names exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.docs.examples import ROOT, table

PAGE = ROOT / "docs" / "guarantees.md"
PROOFS = sorted({proof for row in table(PAGE, "Promise") for proof in re.findall(r"`([^`]+)`", row[1])})
# A test for some of the cases of a function, such as test_a_random_history[0].
CASES = [proof for proof in PROOFS if proof.endswith("]")]


@pytest.mark.parametrize("proof", PROOFS)
def test_every_proof_exists(proof: str) -> None:
    file, _, name = proof.partition("[")[0].partition("::")
    path = ROOT / file
    assert path.exists(), f"{file} does not exist"
    if name:
        body: list[ast.stmt] = ast.parse(path.read_text()).body
        for part in name.split("::"):
            named = [
                node
                for node in body
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                and node.name == part
            ]
            assert named, f"{file} has no {part}"
            body = named[0].body


def test_every_case_exists() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *CASES]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout[-2000:]
