"""Progress of pipelines: written by their threads, shown as lines or bars, and reported to the server.

The server's console and `topics status` name the pipelines that have failed. A thread of its own reports, so
a server that does not answer delays no pipeline; it repeats what it could not report.
"""

import io
import json
import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from pyspark_topics.client import Client
from pyspark_topics.errors import PipelineFailed, did_you_mean
from pyspark_topics.options import ServerOptions
from pyspark_topics.servers import TopicsClient
from topics.client import Refused, Unreachable

# The rate shown is that of the last few seconds: an average since the start says little about now.
RATE_WINDOW_S = 10.0


@dataclass(frozen=True)
class Figures:
    """One pipeline at one moment."""

    pipeline: str
    kind: str
    state: str = "starting"
    note: str = ""
    records: int = 0
    batches: int = 0
    # Gaps that were announced, not the records in them.
    gaps: int = 0
    # Rows that were no record, and went where such rows go.
    errors: int = 0
    rate: float = 0.0
    # Records that are known to wait; None while they have not been counted.
    lag: int | None = None

    @property
    def seconds_left(self) -> float | None:
        if self.lag is None or (self.lag and self.rate <= 0):
            return None
        return self.lag / self.rate if self.lag else 0.0

    def as_json(self) -> dict[str, Any]:
        left = self.seconds_left
        shown = {**asdict(self), "rate": round(self.rate, 1)}
        for name in ("note", "errors"):
            if not shown[name]:
                del shown[name]
        return {**shown, "seconds_left": None if left is None else round(left, 1)}

    def as_text(self) -> str:
        return f"{self.pipeline} ({self.kind}) {self.summary()}"

    def summary(self) -> str:
        """Without the name, which a display may show apart."""
        parts = [self.state, f"{self.records:,} records"]
        if self.rate >= 1:
            parts.append(f"{self.rate:,.0f}/s")
        if self.gaps:
            parts.append(f"{self.gaps:,} gaps")
        if self.errors:
            parts.append(f"{self.errors:,} errors")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.seconds_left:
            parts.append(f"{self.seconds_left:,.0f} s left")
        return ", ".join(parts) + (f": {self.note}" if self.note else "")


class Progress:
    """One pipeline's figures as they change. Its thread writes them, others read them."""

    def __init__(self, name: str, kind: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._figures = Figures(name, kind)
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def say(self, state: str, note: str = "") -> None:
        """`starting`, `running`, `waiting`, `done`, `stopped`, `failed`: and why, where it needs saying."""
        with self._lock:
            self._figures = replace(self._figures, state=state, note=note)

    def expect(self, lag: int) -> None:
        """Set the number of records that wait."""
        with self._lock:
            self._figures = replace(self._figures, lag=lag)

    def advance(self, records: int, *, lag: int | None = None, lost: int = 0, errors: int = 0) -> None:
        """A step is done, durably; `lost` gaps were announced in it, and `errors` rows were no record."""
        with self._lock:
            known = self._figures
            self._figures = replace(
                known,
                records=known.records + records,
                batches=known.batches + 1,
                gaps=known.gaps + lost,
                errors=known.errors + errors,
                lag=lag,
            )
            now = self._clock()
            self._marks.append((now, self._figures.records))
            while len(self._marks) > 2 and self._marks[1][0] < now - RATE_WINDOW_S:
                self._marks.popleft()

    def figures(self) -> Figures:
        with self._lock:
            since, before = self._marks[0]
            elapsed = self._clock() - since
            rate = (self._figures.records - before) / elapsed if elapsed > 0 else 0.0
            return replace(self._figures, rate=rate)


@dataclass
class Missing:
    """Topics that a pipeline waits for. One that stops at the current heads fails instead."""

    client: TopicsClient
    progress: Progress
    once: bool
    _told: list[str] = field(default_factory=list)

    def tell(self, names: list[str]) -> None:
        """`names` are those that are missing now, and were never read."""
        if names == self._told:
            return
        if not names:
            self.progress.say("running")
        else:
            hint = did_you_mean(names[0], self.client.topic_names())
            if self.once:
                raise PipelineFailed(f'there is no topic "{names[0]}"{hint}')
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.progress.say("waiting", f'for topic "{names[0]}"{others}, which is not there yet{hint}')
        self._told = names


# --- displays --------------------------------------------------------------------------------------------

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


# --- reports to the server ---------------------------------------------------------------------------------

log = logging.getLogger(__name__)
# What ends a pipeline; whatever else it does, it runs.
_ENDS = ("done", "stopped", "failed")
# A pipeline that was started again after a failure still counts as failed until it has done a batch, or has
# run for so long without failing again.
_RECOVERED_S = 30.0
# The server forgets who says nothing for a month.
_REPEAT_S = 3600.0
_PATIENCE_S = 1.0
# At the end of a run, what is left to tell has so long.
_LAST_WORDS_S = 5.0
_MOST_CHARACTERS = 1000


@dataclass(frozen=True)
class _Said:
    kind: str
    state: str
    why: str | None
    # When it was first to be said, and how many batches were done by then.
    at_s: float
    batches: int


class Reports:
    # How long to wait until a report that failed is repeated.
    retry_s = 5.0

    def __init__(self, server: ServerOptions, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._servers = [replace(server, url=url, patience_s=_PATIENCE_S) for url in server.urls]
        self._clock_s = clock_s
        self._said: dict[str, _Said] = {}
        # Since when they have run without a failure.
        self._running_since_s: dict[str, float] = {}
        # Names of those of which something is to be told.
        self._untold: set[str] = set()
        self._change = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def note(self, figures: Figures) -> None:
        """Note the current figures of a pipeline."""
        now = self._clock_s()
        with self._change:
            said = self._said.get(figures.pipeline)
            state = figures.state if figures.state in _ENDS else "running"
            why = figures.note[:_MOST_CHARACTERS] or None if state == "failed" else None
            if state == "running":
                running_s = now - self._running_since_s.setdefault(figures.pipeline, now)
            else:
                running_s = 0.0
                self._running_since_s.pop(figures.pipeline, None)
            if said is not None:
                is_same = (said.state, said.why) == (state, why)
                is_doubtful = (
                    said.state == "failed" and state == "running" and figures.batches <= said.batches
                )
                if (is_same and now - said.at_s < _REPEAT_S) or (is_doubtful and running_s < _RECOVERED_S):
                    return
            self._said[figures.pipeline] = _Said(figures.kind, state, why, now, figures.batches)
            self._untold.add(figures.pipeline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tell_all, name="reports", daemon=True)
                self._thread.start()
            self._change.notify()

    def close(self) -> None:
        """Everything that was noted has been told, if the server took it within a few seconds."""
        with self._change:
            self._is_over = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join(_LAST_WORDS_S)

    def _tell_all(self) -> None:
        while True:
            with self._change:
                while not (self._untold or self._is_over):
                    self._change.wait()
                untold, self._untold = sorted(self._untold), set()
                said = [(name, self._said[name]) for name in untold]
                is_over = self._is_over
            failed = [name for name, one in said if not self._tell(name, one)]
            with self._change:
                if is_over and not (self._untold - set(failed)):
                    return
                self._untold.update(failed)
                if failed and not self._is_over:
                    self._change.wait(self.retry_s)

    def _tell(self, name: str, said: _Said) -> bool:
        is_told = True
        for server in self._servers:
            client = Client(server.url, server.api_key, patience_s=server.patience_s)
            try:
                client.put_pipeline(name, said.kind, said.state, said.why)
            except Refused as refusal:
                # A key that may not, or an older server: it would be refused again.
                log.debug("how %s fares is not told: %s", name, refusal)
            except Unreachable as outage:
                log.debug("how %s fares is not told yet: %s", name, outage)
                is_told = False
            except Exception:
                log.warning("how %s fares cannot be told", name, exc_info=True)
            finally:
                client.close()
        return is_told
