"""What people and machines see of pipelines: lines, bars on a terminal, and results as tables."""

import io
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from pyspark_topics.pipelines.progress import Figures

# Where there is no terminal, lines may be long.
UNSEEN_WIDTH = 160


@dataclass
class Lines:
    """A line whenever figures changed: JSON for machines, text for logs."""

    out: IO[str]
    as_json: bool
    # A log read by people should not grow by a line per micro-batch; what changed its state always shows.
    pause_s: float
    _shown: dict[str, tuple[float, Figures]] = field(default_factory=dict)

    def show(self, pipelines: list[Figures], *, last: bool = False) -> None:
        now = time.monotonic()
        for one in pipelines:
            at, before = self._shown.get(one.pipeline, (0.0, None))
            # Rates fall by themselves; that alone is no news.
            if before is not None and replace(before, rate=one.rate) == one:
                continue
            due = last or before is None or before.state != one.state or now - at >= self.pause_s
            if due:
                self._shown[one.pipeline] = (now, one)
                text = json.dumps(one.as_json()) if self.as_json else one.as_text()
                print(text, file=self.out, flush=True)


class Board:
    """Bars for people who watch a terminal: a pipeline each, with records, rate, lag and time left."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[summary]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, pipelines: list[Figures], *, last: bool = False) -> None:
        for one in pipelines:
            if one.pipeline not in self._tasks:
                title = f"[bold]{one.pipeline}[/bold] {one.kind}"
                self._tasks[one.pipeline] = self._bars.add_task("", title=title, summary="")
            # Without a known lag the bar moves to and fro: working, end unknown.
            total = None if one.lag is None else max(one.records + one.lag, 1)
            done = total if total is not None and not one.lag else one.records
            summary = one.summary().replace("[", "\\[")
            self._bars.update(self._tasks[one.pipeline], total=total, completed=done, summary=summary)


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[object]], title: str = ""
) -> tuple[str, ...]:
    """Numbers to the right, with separators; everything else to the left."""
    rows = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for at, heading in enumerate(headings):
        is_number = any(isinstance(row[at], int) for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    out = io.StringIO()
    width = shutil.get_terminal_size((UNSEEN_WIDTH, 24)).columns
    Console(file=out, width=width, color_system=None).print(table)
    return tuple(line.rstrip() for line in out.getvalue().splitlines())
