"""Every boundary, extreme and early return of a part of the sources: which change would no test notice?

Each change is tried against the tests that come along its line, those of its own module first. What is left
is to be read: either a test is missing, or the code is not needed, or the change makes no difference, which
alike.py then knows.
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

from tests.mutation.alike import reason
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.runner import ROOT

SOURCES = Path("src/topics")
# Tests without a server of their own: quick enough to be run a thousand times.
JUDGES = (
    "tests/storage",
    "tests/log",
    "tests/flow",
    "tests/keep",
    "tests/model/test_keeping.py",
    "tests/crash/test_full_disk.py",
    "tests/crash/test_sync_failure.py",
)
# For so many seconds, going by what they took under the eyes of coverage, tests are run against one change.
_BUDGET_S = 12.0
_PATIENCE_S = 180.0
# pytest's exit codes when what it was told to run is not there.
_NO_TESTS = (4, 5)


@dataclass
class Judges:
    """Which tests come along a line, and how long they take."""

    along: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]

    def of(self, path: str, line: int) -> list[str]:
        """The quickest first, but those of the module itself before all others, and then of its folder."""
        own, folder = f"/test_{Path(path).name}", f"tests/{Path(path).parent}/"

        def turn(test: str) -> tuple[bool, bool, float]:
            return own not in test, not test.startswith(folder), self.seconds.get(test, 0.0)

        tests = sorted(self.along.get((path, line), []), key=turn)
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
    # These make no difference; see alike.py.
    alike: list[Mutant] = field(default_factory=list)

    @property
    def left(self) -> list[Mutant]:
        return self.survivors + self.unseen

    def put_down(self, mutant: Mutant, *, seen: bool, alike: bool) -> None:
        """Nothing noticed it."""
        (self.alike if alike else self.survivors if seen else self.unseen).append(mutant)


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
    # Under the eyes of coverage some take ten times as long.
    command += ["--cov-context=test", "--cov-report=", "--timeout=0"]
    command += ["-p", "tests.mutation.survey_times", *JUDGES]
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
    """A process that has collected the judges, and asks some of them."""

    def __init__(self, place: Path, judges: Sequence[str] = JUDGES) -> None:
        environment = os.environ | {"PYTHONPATH": f"{place}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.mutation.survey_worker", *judges]
        self._process = subprocess.Popen(
            command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout

    def notices(self, file: Path, text: str, tests: list[str]) -> bool:
        """Whether one of these tests fails with this text in the file."""
        if not tests:
            return False
        print(json.dumps([str(file), text, tests, _PATIENCE_S]), file=self._stdin, flush=True)
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
        self._stdout.close()


def survey(
    place: Path, judges: Judges, paths: Sequence[str], sample: float, seed: int
) -> Iterator[tuple[Found, Mutant, bool, str | None]]:
    """Of each change that was tried, what was found in its module so far, and whether it was noticed.

    And of one that is known to make no difference, why.
    """
    worker = Worker(place)
    chance = random.Random(seed)
    try:
        for path in paths:
            file = place / SOURCES / path
            text = file.read_text()
            found = Found(path)
            every = mutants(text)
            if every and worker.notices(file, text, judges.of(path, every[0].line)):
                raise SystemExit(f"tests of {path} fail without any change")
            for mutant in every:
                if chance.random() >= sample:
                    continue
                tests = judges.of(path, mutant.line)
                found.tried += 1
                changed = mutant.put_into(text)
                why = reason(path, text, changed)
                try:
                    noticed = worker.notices(file, changed, tests)
                finally:
                    file.write_text(text)
                if not noticed:
                    found.put_down(mutant, seen=bool(tests), alike=why is not None)
                yield found, mutant, noticed, why
    finally:
        worker.close()
