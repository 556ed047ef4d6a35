"""Shared by the verbs on a data directory: its flags, the client of its server, and progress bars."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topics.cli.errors import DEFAULT_URL, refuse_empty
from topics.cli.parser import any_bytes
from topics.cli.settings import read_settings
from topics.client.sync import Topics
from topics.core import Settings, UserMistake
from topics.ops.directory import Steps

if TYPE_CHECKING:
    from rich.progress import Progress


# A restart of a server with a large journal takes seconds.
PATIENCE_S = 20.0
# Long enough for the slowest answer, short enough to notice a machine that vanished.
ANSWER_WITHIN_S = 60.0


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


def add_where(parser: argparse.ArgumentParser) -> Any:
    """Add the flags for a running server or a data directory; more may join the returned group."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=f"a running server (TOPICS_URL, {DEFAULT_URL})")
    where.add_argument("--data-dir", type=any_bytes, help="a data directory without a running server")
    add_cold_dir(parser)
    return where


def add_cold_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cold-dir", type=any_bytes, help="the server's cold directory (TOPICS_COLD_DIR)")


def operator_client(url: str | None) -> Topics:
    """A client of a running server. Its key comes from the environment: all users see command lines."""
    refuse_empty("--url", url)
    try:
        return Topics(url or None, timeout_s=ANSWER_WITHIN_S, retry_s=PATIENCE_S)
    except ValueError as error:
        raise UserMistake(str(error)) from None


def offline_settings(data_dir: str, cold_dir: str | None = None) -> Settings:
    """The settings of the server, with this data directory."""
    settings = read_settings().settings
    return replace(settings, data_dir=data_dir, cold_dir=cold_dir or settings.cold_dir)
