"""Runs tests again and again, each time in a child that has imported everything but what is tested.

A line of JSON in: names of tests, and for how long at most. A line out: pytest's exit code, or null.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

# What takes long to import, and is not what is tested. Plugins of pytest are for pytest to import.
import msgspec  # noqa: F401
import numpy as np  # noqa: F401
import pyarrow as pa  # noqa: F401
import pytest


def _run(tests: list[str]) -> int:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", *tests]))


def _wait(child: int, patience_s: float) -> int | None:
    """Its exit code; None, if it had to be stopped."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    for line in sys.stdin:
        tests, patience_s = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            code = 3
            try:
                code = _run(tests)
            finally:
                os._exit(code)
        print(json.dumps(_wait(child, patience_s)), flush=True)


if __name__ == "__main__":
    main()
