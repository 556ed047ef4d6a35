"""Processes of ours, kept running: their lines get a name in front, and they end when we do."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# One that has run for so long did not die of how it was started: the next pause is short again.
SETTLED_S = 60.0
_PR_SET_PDEATHSIG = 1


class Child:
    """A verb of ours in a process of its own, started again whenever it dies."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        stop: threading.Event,
        *,
        hopeless: int,
        may_finish: bool = False,
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        # Set when the command is to end as a whole; this child sets it when it cannot run.
        self._stop = stop
        # The exit code that means that starting it again is of no use.
        self._hopeless = hopeless
        # Whether it may have done what it had to do.
        self._may_finish = may_finish
        self._process: subprocess.Popen[bytes] | None = None
        self._code = 0
        self._thread = threading.Thread(target=self._keep_running, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, patience_s: float) -> int:
        """Ask, wait, insist. Returns the exit code it ended with by itself, or 0."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                say(self.name, f"does not end within {patience_s:.0f} s and is killed")
            # Its group as well: a JVM must not outlive the Python that started it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if self._thread.ident is not None:
            self._thread.join(patience_s)
        return self._code

    def _keep_running(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            started = time.monotonic()
            code = self._run_once()
            if self._stop.is_set():
                return
            if code == self._hopeless:
                self._code = code
                self._stop.set()
                return
            if code == 0 and self._may_finish:
                return
            if time.monotonic() - started >= SETTLED_S:
                pause = FIRST_PAUSE_S
            say(self.name, f"ended with {_described(code)}, starting it again in {pause:.0f} s")
            self._stop.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _run_once(self) -> int:
        code = f"from topics.cli.children import leashed; leashed({os.getpid()})"
        # A session of its own: Ctrl-C is for us, who end them in order.
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", code, *self._command],
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                say(self.name, line.decode("utf-8", "replace").rstrip("\n"))
        return process.wait()


def say(name: str, line: str) -> None:
    print(f"{name:>9} | {line}", file=sys.stderr, flush=True)


def _described(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def leashed(parent: int) -> None:
    """What a child runs: the command line, ending when its parent is gone, however that went."""
    from topics.cli.main import main

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before we asked to be told
        sys.exit(1)
    sys.exit(main())
