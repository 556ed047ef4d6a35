"""`topics up`: the server, and pipelines beside it, with one command."""

import argparse
import os
import signal
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from typing import Any

from topics.cli.children import Child
from topics.cli.serve import add_mirrored, mirrored
from topics.client import Client, Refused, TopicsError
from topics.values import UserMistake

POLL_S = 0.05
# How long either may take to end by itself. Pipelines finish the batch they are at.
PIPELINES_END_S = 60.0
SERVER_END_S = 60.0
# Exit code of a verb whose user made a mistake: starting it again would not help.
MISTAKE = 2


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "up",
        help="run the server and pipelines",
        description="Run the server and, beside it, the pipelines of a file. Whatever dies is started again; "
        "Ctrl-C or SIGTERM ends the pipelines, then the server.",
    )
    parser.add_argument("--pipelines", metavar="FILE", type=Path, help="a declaration, .toml or .py")
    parser.add_argument("--master", default="local[*]", help="Spark master (local[*])")
    add_mirrored(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    has_pipelines = arguments.pipelines is not None and _declares_any(arguments.pipelines)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="topics-up-") as folder:
        server = _Server(mirrored(arguments, os.environ), Path(folder), stop)
        children = [server.child]
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

    def __init__(self, environment: dict[str, str], folder: Path, stop: threading.Event) -> None:
        self._stop = stop
        self._port_file = Path(environment.get("TOPICS_PORT_FILE") or folder / "port")
        self._port_file.unlink(missing_ok=True)
        environment["TOPICS_PORT_FILE"] = str(self._port_file)
        self._environment = environment
        self.child = Child("server", ["serve"], environment, stop, hopeless=MISTAKE)

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
        with Client(url, patience_s=0.0) as client:
            client.ready()
            return True
    except Refused as refusal:
        return refusal.status in (401, 403)  # it wants a key, so it is there
    except TopicsError:
        return False


def _pipelines(arguments: argparse.Namespace, url: str, stop: threading.Event) -> Child:
    command = ["pipeline", "run", str(arguments.pipelines), "--restart", "--master", arguments.master]
    environment = {**os.environ, "TOPICS_URL": url}
    return Child("pipelines", command, environment, stop, hopeless=MISTAKE, may_finish=True)


def _end(child: Child) -> int:
    return child.end(SERVER_END_S if child.name == "server" else PIPELINES_END_S)
