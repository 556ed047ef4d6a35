"""A process that collects tests once and runs some of them again and again, each time in a forked child.

It reads one order per line, as JSON, and writes one answer per line. The child replaces the code of the
mutated function in place. Code that runs only at import needs a new process instead: see `run_import`.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import IO, Any

import coverage
import pytest

OPTIONS = ("-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:schemathesis")
_IN_A_FUNCTION = 0x1  # CO_OPTIMIZED
_MEMORY_BYTES = 4 << 30


def run_import(order: dict[str, Any]) -> dict[str, Any]:
    """Run tests on a module that is imported with the mutant in it."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if self.path == order["file"]:
            return compile(order["text"], self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    failures = Failures()
    files = dict.fromkeys(test.partition("::")[0] for test in order["tests"])
    code = pytest.main([*OPTIONS, "-x", *files], plugins=[failures, Selection(order["tests"])])
    return failures.answer(code)


# --- mutants in functions -----------------------------------------------------------------------------------


def functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and of its classes, but not functions in functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & _IN_A_FUNCTION:
                yield inner
            else:
                yield from functions(inner)


def nested(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from nested(inner)


def live_functions() -> dict[str, list[FunctionType]]:
    """Return all functions that exist, by file."""
    found: dict[str, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            found.setdefault(thing.__code__.co_filename, []).append(thing)
    return found


def replace_code(old: str, new: str, file: str, live: list[FunctionType]) -> bool:
    """Replace the code of the function that differs. Return False if the module has to be imported again."""
    before, after = (compile(text, file, "exec", dont_inherit=True) for text in (old, new))
    for function, mutated in zip(functions(before), functions(after), strict=True):
        if function == mutated:
            continue
        inner = set(nested(function))
        made = [one for one in live if one.__code__ == function]
        # A function made by this one, such as a decorator's wrapper, would keep its old code.
        if not made or any(one.__code__ in inner for one in live):
            return False
        for one in made:
            one.__code__ = mutated
    return True


# --- the process --------------------------------------------------------------------------------------------


class Failures:
    """Plugin that keeps the names of the tests that fail."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)

    def answer(self, code: int) -> dict[str, Any]:
        """`code` is pytest's. It may be TESTS_FAILED without a failed test: in CI, for a skipped one."""
        is_end = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        return {"killed": bool(self.names) or not is_end, "failed": self.names}


class Selection:
    """Plugin that runs some tests only. As arguments, names with odd characters would not be found."""

    def __init__(self, tests: list[str]) -> None:
        self._tests = tests

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        named = {item.nodeid: item for item in items}
        items[:] = [named[test] for test in self._tests if test in named]


class Mapper:
    """Plugin that records which lines of some files each test runs, and its processor time."""

    def __init__(self, files: list[str]) -> None:
        self._files = files
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=files)
        # A share of the tests may run none of the files.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._coverage.start()
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        before = sum(os.times()[:4])
        yield
        self._seconds[item.nodeid] = sum(os.times()[:4]) - before

    def answer(self) -> dict[str, Any]:
        self._coverage.stop()
        data = self._coverage.get_data()
        return {
            "lines": {file: data.contexts_by_lineno(file) for file in self._files},
            "seconds": self._seconds,
        }


class Loop:
    """Plugin that takes orders instead of running all tests. In a child, pytest's own loop continues."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders = orders
        self._answers = answers
        self._collected = Failures()
        # Set in a child only.
        self._failures: Failures | None = None
        self._mapper: Mapper | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._collected.pytest_collectreport(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        named = {item.nodeid: item for item in session.items}
        # Frozen objects are not listed.
        gc.unfreeze()
        gc.collect()
        live = live_functions()
        # Tests that collect garbage need not look at objects of the parent.
        gc.freeze()
        gc.unfreeze = lambda: None
        session.testsfailed = 0
        self._answer({"tests": list(named), "broken": self._collected.names})
        for line in self._orders:
            order = json.loads(line)
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                session.items = [named[test] for test in order["tests"]]
                self._prepare(session, order, live)
                return None
            if not _ends_well(child, order["seconds"]):
                self._answer({"killed": True, "failed": []})
        session.items = []
        return True

    def _prepare(
        self, session: pytest.Session, order: dict[str, Any], live: dict[str, list[FunctionType]]
    ) -> None:
        plugins = session.config.pluginmanager
        self._failures = Failures()
        plugins.register(self._failures)
        if "files" in order:
            self._mapper = Mapper(order["files"])
            plugins.register(self._mapper)
            return
        file = order["file"]
        if not replace_code(order["old"], order["text"], file, live.get(file, [])):
            self._answer({"import": True})
            os._exit(0)
        session.config.option.maxfail = 1
        limit = int(order["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))

    def end_child(self, code: int) -> None:
        """Answer and end if this process is a child."""
        if self._failures is not None:
            mapped = self._mapper.answer() if self._mapper is not None else {}
            self._answer(self._failures.answer(code) | mapped)
            os._exit(0)

    def _answer(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)


def _ends_well(child: int, seconds: float) -> bool:
    """Wait for a child, which has its own limit of processor time; one that sleeps is stopped much later."""
    until = time.monotonic() + 60 + 10 * seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    # Processes that its tests have started.
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status == 0


def main(arguments: list[str]) -> int:
    with os.fdopen(os.dup(0)) as orders, os.fdopen(os.dup(1), "w") as answers:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        if arguments == ["--import"]:
            print(json.dumps(run_import(json.loads(orders.readline()))), file=answers)
            return 0
        loop = Loop(orders, answers)
        code = pytest.main([*OPTIONS, "--continue-on-collection-errors", *arguments], plugins=[loop])
        loop.end_child(int(code))
        return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
