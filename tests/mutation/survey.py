"""Run mutants against the tests that come along their lines: first a module's own tests, then others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "topics"
# Tests without a server process: they see a mutant, and they are quick.
OTHERS = (
    "tests/storage",
    "tests/log",
    "tests/flow",
    "tests/ops",
    "tests/model/test_keeping.py",
    "tests/crash/test_full_disk.py",
    "tests/crash/test_sync_failure.py",
)
# The most processor time of tests for one mutant.
_BUDGET_S = 12.0
_MAPPING_S = 3600.0
_KILLED: dict[str, Any] = {"killed": True, "failed": []}
_SURVIVES: dict[str, Any] = {"killed": False, "failed": []}


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed: bool
    # The number of tests that ran with it.
    tests: int


def modules(paths: Iterable[str]) -> list[str]:
    """Return module paths below src/topics. A folder stands for all modules in it."""
    found: dict[str, None] = {}
    for path in paths:
        place = SOURCES / path
        if not place.exists():
            raise SystemExit(f"src/topics/{path} does not exist")
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            found[file.relative_to(SOURCES).as_posix()] = None
    return list(found)


def mutants_of(paths: Iterable[str]) -> list[Mutant]:
    return [mutant for path in modules(paths) for mutant in mutants(path, (SOURCES / path).read_text())]


def own_tests(paths: Iterable[str]) -> list[str]:
    """Return the test files of these modules; the folder of tests for a module without a file of its own."""
    found: dict[str, None] = {}
    for path in map(Path, paths):
        folder = ROOT / "tests" / path.parent
        files = sorted(folder.glob(f"test_{path.stem}*.py")) or ([folder] if folder.is_dir() else [])
        found |= {file.relative_to(ROOT).as_posix(): None for file in files}
    return list(found)


def other_tests(paths: Iterable[str]) -> list[str]:
    rooms = {f"tests/{Path(path).parts[0]}" for path in paths} | set(OTHERS)
    return sorted(room for room in rooms if (ROOT / room).exists())


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout: it does not change meanwhile, and a mutant does not damage the original."""
    with tempfile.TemporaryDirectory(prefix="topics-mutation-") as directory:
        place = Path(directory) / "checkout"
        shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".*", "node_modules", "topics-*"))
        yield place


class Worker:
    """A process of tests.mutation.worker, which has collected some tests."""

    def __init__(self, place: Path, arguments: Sequence[str]) -> None:
        self._place = place
        self._environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker", *arguments],
            cwd=place,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self.answer()

    def ask_anew(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run the tests in a process that imports the mutant."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.mutation.worker", "--import"],
                cwd=self._place,
                env=self._environment,
                input=json.dumps(order) + "\n",
                stdout=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60 + 10 * order["seconds"],
            )
        except subprocess.TimeoutExpired:
            return _KILLED
        # A mutant may end the process.
        return _decoded(done.stdout) if done.stdout else _KILLED

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"pytest ended with code {self._process.wait()}")
        return _decoded(line)

    def close(self) -> None:
        self._process.communicate()


def _decoded(line: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(line)
    return answer


class Survey:
    """Some collected tests, the lines that each of them runs, and workers that run them."""

    def __init__(
        self,
        place: Path,
        paths: Sequence[str],
        tests: Sequence[str],
        jobs: int,
        left_out: Sequence[str] = (),
    ) -> None:
        self._files = {path: place / "src" / "topics" / path for path in paths}
        self._texts = {path: file.read_text() for path, file in self._files.items()}
        self._lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._of_module: dict[str, set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = {}
        # Tests that fail without a mutant, and tests that are known to pass.
        self._failing: set[str] = set()
        self._passing: set[str] = set()
        self._jobs = jobs
        self._idle: Queue[Worker] = Queue()
        with ExitStack() as stack:
            arguments = [*tests, *(f"--ignore={one}" for one in left_out)]
            workers = [Worker(place, arguments) for _ in range(jobs)]
            for worker in workers:
                stack.callback(worker.close)
            ready, *_ = [worker.answer() for worker in workers]
            for name in ready["broken"]:
                print(f"left out, because it cannot be imported: {name}", file=sys.stderr)
            self._map(workers, ready["tests"])
            self._closing = stack.pop_all()

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _map(self, workers: list[Worker], tests: list[str]) -> None:
        files = {str(file): path for path, file in self._files.items()}
        number = {
            name: at for at, name in enumerate(dict.fromkeys(test.partition("::")[0] for test in tests))
        }
        shares: list[list[str]] = [[] for _ in workers]
        for test in tests:
            shares[number[test.partition("::")[0]] % len(workers)].append(test)

        def run(worker: Worker, share: list[str]) -> dict[str, Any]:
            return worker.ask({"tests": share, "files": list(files), "seconds": _MAPPING_S})

        with ThreadPoolExecutor(len(workers)) as pool:
            for answer in pool.map(run, workers, shares):
                if "lines" not in answer:
                    raise SystemExit("the tests did not end without a mutant")
                self._seconds |= answer["seconds"]
                self._failing |= set(answer["failed"])
                for file, lines in answer["lines"].items():
                    for line, names in lines.items():
                        # No name: outside of tests.
                        self._lines[files[file], int(line)] |= set(names) - {""}
                        self._of_module[files[file]] |= set(names) - {""}
        for worker in workers:
            self._idle.put(worker)
        for test in sorted(self._failing):
            print(f"left out, because it fails without a mutant: {test}", file=sys.stderr)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the quickest tests that run a mutant, up to a limit of time."""
        found: set[str] = set()
        if mutant.in_function:
            found = found.union(
                *(self._lines[mutant.path, n] for n in range(mutant.line, mutant.end_line + 1))
            )
        else:
            found = self._of_module[mutant.path]
        chosen: list[str] = []
        left = _BUDGET_S
        for test in sorted(found - self._failing, key=lambda test: (self._seconds[test], test)):
            left -= self._seconds[test]
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def judge(self, chosen: Sequence[Mutant]) -> Iterator[Verdict]:
        """Yield the verdicts as they come."""
        pool = ThreadPoolExecutor(self._jobs)
        try:
            for done in as_completed([pool.submit(self._judge, mutant) for mutant in chosen]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _judge(self, mutant: Mutant) -> Verdict:
        worker = self._idle.get()
        try:
            while True:
                tests = self.tests_of(mutant)
                answer = self._run(worker, mutant, tests) if tests else _SURVIVES
                if not self._is_unreliable(worker, mutant, tests, answer["failed"]):
                    return Verdict(mutant, answer["killed"], len(tests))
        finally:
            self._idle.put(worker)

    def _is_unreliable(self, worker: Worker, mutant: Mutant, tests: list[str], failed: list[str]) -> bool:
        """Whether the test that failed does so without a mutant, too. It is then left out."""
        known = [test for test in failed if test in tests and test not in self._passing]
        for test in known:
            if self._run(worker, mutant, tests[: tests.index(test) + 1], mutated=False)["killed"]:
                print(f"left out, because it fails without a mutant: {test}", file=sys.stderr)
                self._failing.add(test)
                return True
            self._passing.add(test)
        return False

    def _run(
        self, worker: Worker, mutant: Mutant, tests: list[str], *, mutated: bool = True
    ) -> dict[str, Any]:
        old = self._texts[mutant.path]
        order = {
            "tests": tests,
            "file": str(self._files[mutant.path]),
            "old": old,
            "text": mutant.apply(old) if mutated else old,
            "seconds": 1 + 5 * sum(self._seconds[test] for test in tests),
        }
        answer = worker.ask(order) if mutant.in_function or not mutated else {"import": True}
        return worker.ask_anew(order) if "import" in answer else answer


def survey(chosen: Sequence[Mutant], jobs: int, tests: Sequence[str] = ()) -> Iterator[Verdict]:
    """Yield the final verdict of each mutant. `tests` replaces the choice of own tests, then others."""
    near = list(tests) or own_tests(_paths(chosen))
    left = list(chosen)
    with copied() as place:
        if near:
            left = []
            with Survey(place, _paths(chosen), near, jobs) as first:
                for verdict in first.judge(chosen):
                    if verdict.killed or tests:
                        yield verdict
                    else:
                        left.append(verdict.mutant)
        if left:
            with Survey(place, _paths(left), other_tests(_paths(left)), jobs, left_out=near) as second:
                yield from second.judge(left)


def _paths(chosen: Sequence[Mutant]) -> list[str]:
    return list(dict.fromkeys(mutant.path for mutant in chosen))
