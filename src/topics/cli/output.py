"""Prints results: a JSON object per line for programs, tables and colours on a terminal."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from topics.cli.errors import clean, clean_json
from topics.core import UserMistake

if TYPE_CHECKING:
    from rich.console import Console


# A column of a table that is wider may be folded down to this; and what is between two columns.
_NARROW = 20
_BETWEEN = 2


def undollared(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the API without `$`."""
    return {name.removeprefix("$"): value for name, value in row.items()}


class Output:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.for_machines: bool = arguments.json or not sys.stdout.isatty()
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        if self._console is None:
            self._console = new_console()
        return self._console

    def line(self, encoded: bytes) -> None:
        """Print one line and flush it: the program that reads may wait for it."""
        text = encoded.decode("utf-8", "surrogateescape")
        sys.stdout.write(clean_json(text) if sys.stdout.isatty() else text)
        sys.stdout.write("\n")
        sys.stdout.flush()

    def row(self, row: Mapping[str, Any]) -> None:
        self.line(msgspec.json.encode(undollared(row)))

    def answer(self, row: Mapping[str, Any], text: str) -> None:
        """Print an answer: the whole of it for programs, a text for people."""
        if self.for_machines:
            self.row(row)
        else:
            self.say(text)

    def say(self, text: str, style: str = "") -> None:
        """Print text for a person. A terminal wraps it; elsewhere it stays one line."""
        from rich.text import Text

        self.console.print(Text(clean(text), style=style), soft_wrap=not self.console.is_terminal)

    def rows(
        self,
        rows: Iterable[Mapping[str, Any]],
        columns: Sequence[str],
        empty: str,
        *,
        kept: Sequence[str] = (),
    ) -> None:
        """All of them: a line each, or a table with these columns.

        Where not all have room, the last are left out, but for the first and those that are to be `kept`.
        """
        if self.for_machines:
            for row in rows:
                self.row(row)
            return
        from rich.table import Table
        from rich.text import Text

        found = [undollared(row) for row in rows]
        if not found:
            self.say(empty)
            return
        cells = {column: [shown(row.get(column), column) for row in found] for column in columns}
        with_room = _with_room(cells, self.console.width, {columns[0], *kept})
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in with_room:
            numbers = not _is_time(column) and all(isinstance(row.get(column), int) for row in found)
            whole = numbers or _width(column, cells[column]) <= _NARROW
            table.add_column(column, justify="right" if numbers else "left", overflow="fold", no_wrap=whole)
        for values in zip(*(cells[column] for column in with_room), strict=True):
            table.add_row(*map(Text, values))
        self.console.print(table)
        left_out = [column for column in columns if column not in with_room]
        if left_out:
            self.say(f"without {', '.join(left_out)}: --json has all", "dim")

    def pairs(self, row: Mapping[str, Any]) -> None:
        """Print one object: as JSON, or with a line for each key."""
        if self.for_machines:
            self.row(row)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", overflow="fold")
        table.add_column(overflow="fold")
        for name, value in _flat(undollared(row)):
            table.add_row(Text(clean(name)), Text(shown(value, name)))
        self.console.print(table)


def new_console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    # NO_COLOR also turns off bold and dim.
    plain: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, **plain)


def _with_room(cells: dict[str, list[str]], width: int, kept: set[str]) -> list[str]:
    """The columns that fit into the width. Long values wrap."""
    columns = list(cells)

    def needed() -> int:
        wide = (min(_width(column, cells[column]), _NARROW) for column in columns)
        return sum(wide) + _BETWEEN * (len(columns) - 1)

    for column in reversed(cells):
        if needed() > width and column not in kept:
            columns.remove(column)
    return columns


def _width(column: str, values: list[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, (column, *values)))


def time_of(ts: int) -> str:
    return datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_time(name: str) -> bool:
    return name == "deadline" or name.endswith("ts")


def shown(value: object, name: str = "") -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, int) and _is_time(name):
        return time_of(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def has_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and (sys.stderr.isatty() or sys.stdout.isatty())


def confirmed(question: str, expected: str) -> bool:
    """Whether the person typed exactly this."""
    return _typed(question) == expected


def agreed(question: str) -> bool:
    """Whether the person said yes. Anything else is a no."""
    return _typed(f"{question} [y/N]").lower() in ("y", "yes")


def _typed(question: str) -> str:
    """Ask on the terminal; an error without one."""
    if not has_terminal():
        raise UserMistake("nobody can be asked here: say --yes")
    print(f"{clean(question)} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
    return answer.strip()


@contextmanager
def progress(text: str, total: float | None, *, hidden: bool = False) -> Iterator[Callable[[float], None]]:
    """A progress bar on the terminal; the yielded function advances it."""
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda by: bar.advance(task, by)


# --- for operators ------------------------------------------------------------------------------------------


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the result as JSON, for machines")


def show(result: dict[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(result) if as_json else text)


def amount(size: float) -> str:
    """A size with a unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Terminal:
    """The terminal that a command was started from, if any.

    SIGHUP means "read the files again". It also comes when the terminal is closed, and means the end then.
    """

    def __init__(self, *, closing_ends: bool = True) -> None:
        """`closing_ends` is False for a command that outlives its terminal, as with nohup."""
        self._was_there = closing_ends and self._is_there()

    def is_gone(self) -> bool:
        return self._was_there and not self._is_there()

    def _is_there(self) -> bool:
        try:
            os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        except OSError:
            return False
        return True
