"""Breaks one mechanism at a time, in a copy of the sources, and looks whether its proof notices.

python -m tests.mutation [name …] [--list]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("src", "tests", "benchmarks", "docs", "examples", "README.md", "pyproject.toml")
# pytest's exit code when tests ran and some failed; any other code is not a verdict.
_TESTS_FAILED = 1
_PATIENCE_S = 600
# Only which test failed is told, not what it compared; what takes long to import is left out.
OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:schemathesis")


@dataclass(frozen=True)
class Mutation:
    """`old` occurs once in the file `path` under src/topics; with `new` instead, `proof` must fail."""

    name: str
    promise: str
    path: str
    old: str
    new: str
    proof: tuple[str, ...]

    @property
    def file(self) -> Path:
        return Path("src/topics") / self.path


@dataclass(frozen=True)
class Verdict:
    mutation: Mutation
    caught: bool
    seconds: float
    said: str


@contextmanager
def workshop() -> Iterator[Path]:
    """A copy of everything the proofs need."""
    with tempfile.TemporaryDirectory(prefix="topics-mutation-") as directory:
        place = Path(directory)
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, place / name)
        yield place


def run_proof(place: Path, proof: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code, and its last words."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *proof]
    environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (failed or lines[-1:] or [""])[0][:160]


def put_to_the_test(place: Path, mutation: Mutation) -> Verdict:
    """Break it, run the proof, mend it."""
    file = place / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.file} has the text {text.count(mutation.old)} times")
    started = time.monotonic()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        code, said = run_proof(place, mutation.proof)
    finally:
        file.write_text(text)
    return Verdict(mutation, code == _TESTS_FAILED, time.monotonic() - started, said)
