"""Progress bars: one line per pipeline with records, rate, lag and time left."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from pyspark_topics.pipelines.progress import Snapshot


class Board:
    """The same as `Lines`, for somebody who watches a terminal."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Board:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, snapshots: list[Snapshot], *, last: bool = False) -> None:
        for one in snapshots:
            if one.pipeline not in self._tasks:
                title = f"[bold]{one.pipeline}[/bold] {one.kind}"
                self._tasks[one.pipeline] = self._bars.add_task("", title=title, figures="")
            # Without a known lag the bar moves to and fro: working, end unknown.
            total = None if one.lag is None else max(one.records + one.lag, 1)
            done = total if total is not None and not one.lag else one.records
            self._bars.update(self._tasks[one.pipeline], total=total, completed=done, figures=_figures(one))


def _figures(one: Snapshot) -> str:
    return one.as_text().partition(f"({one.kind}) ")[2].replace("[", "\\[")
