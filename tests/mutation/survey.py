"""Every boundary, extreme and early return of a part of the sources: which change would no test notice?

Each change is tried against the tests that come along its line, those of its own module first. What is left
is to be read: either a test is missing, or the code is not needed, or the change makes no difference.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.runner import ROOT

SOURCES = Path("src/topics")
# Tests without a server of their own: quick enough to be run a thousand times.
JUDGES = ("tests/storage", "tests/log", "tests/flow", "tests/keep", "tests/model/test_keeping.py")
# For so many seconds, going by what they took before, tests are run against one change.
_BUDGET_S = 2.0
_PATIENCE_S = 180.0
# pytest's exit codes when what it was told to run is not there.
_NO_TESTS = (4, 5)


@dataclass
class Judges:
    """Which tests come along a line, and how long they take."""

    along: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]

    def of(self, path: str, line: int) -> list[str]:
        """The quickest first, but those of the module itself before all others."""
        own = f"/test_{Path(path).name}"
        tests = sorted(
            self.along.get((path, line), []), key=lambda t: (own not in t, self.seconds.get(t, 0.0))
        )
        chosen, left = [], _BUDGET_S
        for test in tests:
            left -= self.seconds.get(test, 0.0) + 0.002
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen


@dataclass
class Found:
    path: str
    tried: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    # No test comes along these.
    unseen: list[Mutant] = field(default_factory=list)

    @property
    def left(self) -> list[Mutant]:
        return self.survivors + self.unseen


def modules(paths: Sequence[str]) -> list[str]:
    """Below src/topics; a folder stands for all that is in it."""
    found: list[str] = []
    for path in paths:
        place = ROOT / SOURCES / path
        if place.is_dir():
            found += sorted(str(file.relative_to(ROOT / SOURCES)) for file in place.rglob("*.py"))
        else:
            found.append(str(place.relative_to(ROOT / SOURCES)))
    return found


def watch(place: Path, kept: Path | None) -> Judges:
    """Runs the judges once. `kept` is a file with the outcome of an earlier time, or for a later one."""
    if kept is not None and kept.exists():
        seen = json.loads(kept.read_text())
        names = list(seen["seconds"])
        along = {(path, line): [names[at] for at in tests] for path, line, tests in seen["along"]}
        return Judges(along, seen["seconds"])
    data = place / "coverage.data"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--cov=src/topics"]
    command += ["--cov-context=test", "--cov-report=", "-p", "tests.mutation.survey_times", *JUDGES]
    environment = os.environ | {"PYTHONPATH": f"{place}/src", "COVERAGE_FILE": str(data)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the judges fail without any change: {done.stdout[-2000:]}")
    judges = Judges(_along(data, place), json.loads((place / "times.json").read_text()))
    if kept is not None:
        number = {name: at for at, name in enumerate(judges.seconds)}
        along = [
            (path, line, [number[test] for test in tests]) for (path, line), tests in judges.along.items()
        ]
        kept.write_text(json.dumps({"along": along, "seconds": judges.seconds}))
    return judges


def _along(data: Path, place: Path) -> dict[tuple[str, int], list[str]]:
    from coverage import CoverageData

    seen = CoverageData(str(data))
    seen.read()
    along: dict[tuple[str, int], list[str]] = {}
    for path in seen.measured_files():
        short = str(Path(path).relative_to(place / SOURCES))
        for line, contexts in seen.contexts_by_lineno(path).items():
            # "name|setup", "name|run", "name|teardown"; without a name: while tests were imported.
            along[short, line] = sorted({context.rpartition("|")[0] for context in contexts} - {""})
    return along


class Worker:
    def __init__(self, place: Path) -> None:
        environment = os.environ | {"PYTHONPATH": f"{place}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.mutation.survey_worker"]
        self._process = subprocess.Popen(
            command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout

    def notices(self, tests: list[str]) -> bool:
        if not tests:
            return False
        print(json.dumps([tests, _PATIENCE_S]), file=self._stdin, flush=True)
        answer = self._stdout.readline()
        if not answer:
            raise SystemExit("the worker is gone")
        code = json.loads(answer)
        if code in _NO_TESTS:
            raise SystemExit(f"pytest does not find {tests}")
        # Not even importable, or never at an end: that is noticed, too.
        return bool(code != 0)

    def close(self) -> None:
        self._stdin.close()
        self._process.wait()


def survey(
    place: Path, judges: Judges, paths: Sequence[str], sample: float, seed: int
) -> Iterator[tuple[Found, Mutant, bool]]:
    """Of each change that was tried, what was found in its module so far, and whether it was noticed."""
    worker = Worker(place)
    chance = random.Random(seed)
    try:
        for path in paths:
            file = place / SOURCES / path
            text, times = file.read_text(), file.stat()
            found = Found(path)
            every = mutants(text)
            if every and worker.notices(judges.of(path, every[0].line)):
                raise SystemExit(f"tests of {path} fail without any change")
            for mutant in every:
                if chance.random() >= sample:
                    continue
                tests = judges.of(path, mutant.line)
                found.tried += 1
                file.write_text(mutant.put_into(text))
                try:
                    noticed = worker.notices(tests)
                finally:
                    file.write_text(text)
                    # What Python has compiled of it is still good.
                    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
                if not noticed:
                    (found.survivors if tests else found.unseen).append(mutant)
                yield found, mutant, noticed
    finally:
        worker.close()
