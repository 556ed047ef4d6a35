"""Runs tests again and again, each time in a child that has imported and collected everything already.

The child puts the code of the changed functions into their place, which takes no time; only what is changed
outside of functions has to be imported anew. A line of JSON in: a path, its changed text, names of tests, and
for how long at most. A line out: pytest's exit code, or null.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.main import Session, pytest_runtestloop

from tests.mutation.runner import OPTIONS

_IN_A_FUNCTION = 0x1  # CO_OPTIMIZED


def functions(code: CodeType) -> Iterator[CodeType]:
    """Those that a module, or a class in it, has; not those inside of functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & _IN_A_FUNCTION:
                yield inner
            else:
                yield from functions(inner)


def around_functions(code: CodeType) -> tuple[object, ...]:
    """What is done when a module is imported, without the functions that it makes."""
    inner = [
        around_functions(const) if not const.co_flags & _IN_A_FUNCTION else const.co_qualname
        for const in code.co_consts
        if isinstance(const, CodeType)
    ]
    others = [const for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, repr(others), code.co_names, tuple(inner)


def by_file() -> dict[str, list[FunctionType]]:
    """All functions that there are."""
    found: dict[str, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            found.setdefault(thing.__code__.co_filename, []).append(thing)
    return found


def put_in_place(file: str, text: str, made: list[FunctionType]) -> bool:
    """Whether all that is changed is in functions, and those that were made of them have been changed."""
    old, new = compile(Path(file).read_text(), file, "exec"), compile(text, file, "exec")
    if around_functions(old) != around_functions(new):
        return False
    # Several may have one name: a property, and what sets it.
    changed = {
        (before.co_qualname, before.co_firstlineno): after
        for before, after in zip(functions(old), functions(new), strict=True)
        if before != after
    }
    missing = set(changed)
    for function in made:
        code = function.__code__
        name = code.co_qualname, code.co_firstlineno
        function.__code__ = changed.get(name, code)
        missing.discard(name)
    return not missing


class Loop:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = os.fdopen(orders)
        self._answers = os.fdopen(answers, "w")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool:
        named = {item.nodeid: item for item in session.items}
        gc.collect()
        made = by_file()
        # What is there by now never goes: tests that collect garbage need not look at it.
        gc.freeze()
        gc.unfreeze = lambda: None  # type: ignore[assignment]
        for line in self._orders:
            path, text, tests, patience_s = json.loads(line)
            session.items = [named[test] for test in tests if test in named]
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                os._exit(_run(session, path, text, tests, made))
            print(json.dumps(_wait(child, patience_s)), file=self._answers, flush=True)
        session.items = []
        return True


def _run(
    session: Session, path: str, text: str, tests: list[str], made: dict[str, list[FunctionType]]
) -> int:
    """pytest's exit code: 0 when all passed."""
    try:
        file = str(Path(path).resolve())
        if not put_in_place(file, text, made.get(file, [])):
            Path(file).write_text(text)
            os.execv(sys.executable, [sys.executable, "-m", "pytest", *OPTIONS, *tests])
        if len(session.items) != len(tests):
            return int(pytest.ExitCode.USAGE_ERROR)
        pytest_runtestloop(session)
    except BaseException:
        return int(pytest.ExitCode.TESTS_FAILED)
    return int(pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK)


def _wait(child: int, patience_s: float) -> int | None:
    """Its exit code; None, if it had to be stopped."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(judges: list[str]) -> int:
    orders, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    return int(pytest.main([*OPTIONS, *judges], plugins=[Loop(orders, answers)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
