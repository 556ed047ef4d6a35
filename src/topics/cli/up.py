"""`topics up`: the server, and pipelines beside it, with one command."""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from topics.cli.errors import MISTAKE
from topics.cli.output import Terminal
from topics.cli.parser import add_verb
from topics.cli.settings import add_flags, environment_with, read_settings
from topics.client import Refused, TopicsError
from topics.client.sync import Topics
from topics.core import UserMistake

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
        may_finish: bool = False,
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        # Set when the command is to end as a whole; this child sets it when it cannot run.
        self._stop = stop
        # Whether it may have done what it had to do.
        self._may_finish = may_finish
        self._process: subprocess.Popen[bytes] | None = None
        self._code = 0
        self._thread = threading.Thread(target=self._keep_running, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hang_up(self) -> None:
        """It reads its files again."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

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
            if code == MISTAKE:  # starting it again would not help
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
        code = f"from topics.cli.up import leashed; leashed({os.getpid()})"
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


POLL_S = 0.05
# How long either may take to end by itself. Pipelines finish the batch they are at.
PIPELINES_END_S = 60.0
SERVER_END_S = 60.0


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "up",
        run,
        "Run the server and, beside it, the pipelines of a file. Whatever dies is started again; Ctrl-C or "
        "SIGTERM ends the pipelines, then the server.",
    )
    parser.add_argument("--pipelines", metavar="FILE", type=Path, help="a declaration, .toml or .py")
    parser.add_argument("--master", default="local[*]", help="Spark master (local[*])")
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    has_pipelines = arguments.pipelines is not None and _declares_any(arguments.pipelines)
    # Mistakes are told here once, and not by a child that was started for nothing.
    port_file = read_settings(arguments).settings.port_file
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    terminal = Terminal(closing_ends=signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="topics-up-") as folder:
        server = _Server(environment_with(arguments), Path(port_file or f"{folder}/port"), stop)
        children = [server.child]
        signal.signal(signal.SIGHUP, lambda *_: stop.set() if terminal.is_gone() else server.child.hang_up())
        try:
            url = server.start()
            if url is not None and has_pipelines:
                children.append(_pipelines(arguments, url, stop))
                children[-1].start()
            stop.wait()
        finally:
            stop.set()
            codes = [_end(child) for child in reversed(children)]
    return max(codes)


def _declares_any(path: Path) -> bool:
    """Without pipelines there is no reason to start Spark. What a Python file declares shows when it runs."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserMistake(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserMistake(f"{path}: this is not text: {error}") from None
    if path.suffix == ".py":
        return True
    try:
        return bool(tomllib.loads(text).get("pipeline"))
    except tomllib.TOMLDecodeError as error:
        raise UserMistake(f"{path}: this is not TOML: {error}") from None


class _Server:
    """The server as a child, on one port for as long as we run."""

    def __init__(self, environment: dict[str, str], port_file: Path, stop: threading.Event) -> None:
        self._stop = stop
        self._port_file = port_file
        self._port_file.unlink(missing_ok=True)
        environment["TOPICS_PORT_FILE"] = str(port_file)
        self._environment = environment
        self.child = Child("server", ["serve"], environment, stop)

    def start(self) -> str | None:
        """Its address, once it answers; None if it never will."""
        self.child.start()
        while not self._stop.wait(POLL_S):
            if self._port_file.exists() and (address := self._port_file.read_text().strip()):
                # A server that is started again has to be found where it was.
                self._environment["TOPICS_PORT"] = address.rpartition(":")[2]
                url = _reachable(address)
                if _is_ready(url):
                    print(f"topics: ready on {url}", file=sys.stderr, flush=True)
                    return url
        return None


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "[::]": "[::1]"}
    return f"http://{everywhere.get(host, host)}:{port}"


def _is_ready(url: str) -> bool:
    try:
        with Topics(url, retry_s=0) as client:
            client.wait_until_ready()
            return True
    except Refused as refusal:
        return refusal.status in (401, 403)  # it wants a key, so it is there
    except TopicsError:
        return False


def _pipelines(arguments: argparse.Namespace, url: str, stop: threading.Event) -> Child:
    command = ["pipeline", "run", str(arguments.pipelines), "--restart", "--master", arguments.master]
    environment = {**os.environ, "TOPICS_URL": url}
    return Child("pipelines", command, environment, stop, may_finish=True)


def _end(child: Child) -> int:
    return child.end(SERVER_END_S if child.name == "server" else PIPELINES_END_S)
