"""Where verbs print: an object a line for machines, tables and colours for a person at a terminal."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from topics.cli.work import clean
from topics.values import UserMistake

if TYPE_CHECKING:
    from rich.console import Console


def undollared(row: Mapping[str, Any]) -> dict[str, Any]:
    """The wire's keys, `$` dropped."""
    return {name.removeprefix("$"): value for name, value in row.items()}


class Output:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.for_machines: bool = arguments.json or not sys.stdout.isatty()
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)
        return self._console

    def line(self, encoded: bytes) -> None:
        """One line, at once: the program that reads may wait for it."""
        sys.stdout.write(encoded.decode("utf-8", "surrogateescape"))
        sys.stdout.write("\n")
        sys.stdout.flush()

    def row(self, row: Mapping[str, Any]) -> None:
        self.line(msgspec.json.encode(undollared(row)))

    def say(self, text: str, style: str = "") -> None:
        """For a person."""
        from rich.text import Text

        self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], empty: str) -> None:
        """All of them: a line each, or a table with these columns."""
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
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            numbers = all(isinstance(row.get(column), int) for row in found)
            table.add_column(column, justify="right" if numbers else "left", overflow="fold")
        for row in found:
            table.add_row(*(Text(shown(row.get(column))) for column in columns))
        self.console.print(table)

    def pairs(self, row: Mapping[str, Any]) -> None:
        """One thing: an object, or its keys below each other."""
        if self.for_machines:
            self.row(row)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold")
        for name, value in _flat(undollared(row)):
            table.add_row(Text(clean(name)), Text(shown(value)))
        self.console.print(table)


def shown(value: object) -> str:
    """A value in a table."""
    if value is None:
        return "-"
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
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and (sys.stderr.isatty() or sys.stdout.isatty())


def confirmed(question: str, expected: str) -> bool:
    """Whether the person typed what stands for yes. Without a person it is a mistake to need one."""
    if not has_terminal():
        raise UserMistake("nobody can be asked here: say --yes")
    print(f"{clean(question)} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return answer.strip() == expected


@contextmanager
def progress(text: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A bar on the terminal, which the function that is given moves on."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda by: bar.advance(task, by)
