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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("src", "scripts", "tests", "benchmarks", "docs", "examples", "README.md", "pyproject.toml")
# pytest's exit code when tests ran and some failed; any other code is not a verdict.
_TESTS_FAILED = 1
_NO_VERDICT = -1
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

    @property
    def by(self) -> str:
        """The test that failed, as pytest names it."""
        return self.said.partition(" ")[2].partition(" - ")[0] if self.caught else ""


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


def run_proof(place: Path, proof: Sequence[str], *, all_of_it: bool = False) -> tuple[int, list[str]]:
    """pytest's exit code, and what it said of the tests that failed, or its last words."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *(("--maxfail=0",) if all_of_it else ()), *proof]
    environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=None if all_of_it else _PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _NO_VERDICT, [f"not at an end after {_PATIENCE_S} s"]
    lines = (done.stdout + done.stderr).strip().splitlines()
    # A log that pytest shows has lines that begin in the same way.
    failed = [line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))]
    return done.returncode, failed or lines[-1:] or [""]


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
    return Verdict(mutation, code == _TESTS_FAILED, time.monotonic() - started, said[0])


def judge(mutations: Sequence[Mutation], jobs: int) -> Iterator[Verdict]:
    """Of each mutation, in the order in which they come to an end; `jobs` at a time, each in its own copy.

    A test that fails without any mutation has caught nothing, so those that failed are run again at the end.
    """
    with ExitStack() as stack:
        places: Queue[Path] = Queue()
        for _ in range(jobs):
            places.put(stack.enter_context(workshop()))

        def one(mutation: Mutation) -> Verdict:
            place = places.get()
            try:
                return put_to_the_test(place, mutation)
            finally:
                places.put(place)

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        blamed = set()
        for done in as_completed([pool.submit(one, mutation) for mutation in mutations]):
            verdict = done.result()
            blamed.add(verdict.by)
            yield verdict
        if blamed := blamed - {""}:
            code, said = run_proof(places.get(), sorted(blamed), all_of_it=True)
            if code:
                raise SystemExit("\n".join(["these fail without any mutation:", *said]))
