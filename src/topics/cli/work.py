"""What the verbs share: where the data is, mistakes as one line, results as text or JSON, progress bars."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topics.cli.settings import read_settings
from topics.client import Client, TopicsError
from topics.keep.steps import Steps
from topics.log import RecoveryFailed
from topics.storage import ForeignFile, LockHeld
from topics.values import ConfigError, Settings, UserMistake

if TYPE_CHECKING:
    from rich.progress import Progress

# Exit code of a verb whose user made a mistake: trying again would not help.
MISTAKE = 2
DEFAULT_URL = "http://127.0.0.1:4000"


def tell(message: str) -> None:
    print(f"topics: {message}", file=sys.stderr)


def answering(work: Callable[[], int], tell: Callable[[str], None] = tell) -> int:
    """Whatever went wrong is one line (settings: one for each that is wrong), and exit code 2."""
    try:
        return work()
    except LockHeld as error:
        message = f"{error}: stop the server first"
    except (UserMistake, TopicsError, ConfigError, ForeignFile, RecoveryFailed, OSError) as error:
        message = str(error)
    except KeyboardInterrupt:
        message = "interrupted"
    for line in message.splitlines() or [message]:
        tell(line)
    return MISTAKE


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the result as JSON, for machines")


def show(result: dict[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(result) if as_json else text)


class Terminal:
    """The terminal that a command was started from, if there was one.

    The signal that says "read your files again" comes as well when it is closed, and means the end then.
    """

    def __init__(self, *, closing_ends: bool = True) -> None:
        """`closing_ends`: False for a command that was started to outlive its terminal, as by nohup."""
        self._was_there = closing_ends and self._is_there()

    def is_gone(self) -> bool:
        return self._was_there and not self._is_there()

    def _is_there(self) -> bool:
        try:
            os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        except OSError:
            return False
        return True


def client_for(url: str | None) -> Client:
    """The key comes from the environment: what is typed on a command line, every user of the machine sees."""
    try:
        return Client(url or os.environ.get("TOPICS_URL") or DEFAULT_URL, os.environ.get("TOPICS_API_KEY"))
    except ValueError as error:
        raise UserMistake(str(error)) from None


class Bar(Steps):
    """A bar that moves, on a terminal."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._text = ""
        self._task = progress.add_task("", visible=False)

    def begin(self, text: str, total: float | None = None) -> None:
        if text != self._text:
            self._progress.remove_task(self._task)
            self._text = text
            self._task = self._progress.add_task(text, total=total)

    def advance(self, by: float = 1) -> None:
        self._progress.advance(self._task, by)

    def reach(self, value: float, total: float | None = None) -> None:
        self._progress.update(self._task, completed=value, total=total)


@contextmanager
def progress(*, as_json: bool) -> Iterator[Steps]:
    if as_json or not sys.stderr.isatty():
        yield Steps()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)


def amount(size: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def add_where(parser: argparse.ArgumentParser) -> Any:
    """A server that runs, or the directory of one that does not. More of the same choice may be added."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=f"a running server (TOPICS_URL, {DEFAULT_URL})")
    where.add_argument("--data-dir", help="a data directory without a running server")
    add_cold_dir(parser)
    return where


def add_cold_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cold-dir", help="the server's cold directory (TOPICS_COLD_DIR)")


def offline_settings(data_dir: str, cold_dir: str | None = None) -> Settings:
    """Sizes as the server has them."""
    settings = read_settings().settings
    return replace(settings, data_dir=data_dir, cold_dir=cold_dir or settings.cold_dir)
