"""Results as tables for people."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

# Where nobody is looking, lines may be long.
UNSEEN_WIDTH = 160


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
    Console(file=out, width=shutil.get_terminal_size((UNSEEN_WIDTH, 24)).columns, color_system=None).print(
        table
    )
    return tuple(line.rstrip() for line in out.getvalue().splitlines())
