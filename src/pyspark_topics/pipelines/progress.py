"""How far pipelines have come: written by their threads, shown on a terminal or as lines of JSON."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, Any

# The rate shown is that of the last few seconds: an average since the start says little about now.
RATE_WINDOW_S = 10.0


@dataclass
class Progress:
    """One pipeline's figures. Its thread writes them, others read `snapshot`."""

    name: str
    kind: str
    clock: Any = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._state = "starting"
        self._note = ""
        self._records = 0
        self._batches = 0
        self._lost = 0
        # Records that are known to wait; None while nobody has looked.
        self._lag: int | None = None
        self._marks: deque[tuple[float, int]] = deque([(self.clock(), 0)])

    def say(self, state: str, note: str = "") -> None:
        """`starting`, `running`, `waiting`, `done`, `stopped`, `failed`: and why, where it needs saying."""
        with self._lock:
            self._state, self._note = state, note

    def advance(self, records: int, *, lag: int | None = None, lost: int = 0) -> None:
        """A step is done, durably. `lost` counts announced gaps, not the records in them."""
        with self._lock:
            self._records += records
            self._lost += lost
            self._batches += 1
            self._lag = lag
            now = self.clock()
            self._marks.append((now, self._records))
            while len(self._marks) > 2 and self._marks[1][0] < now - RATE_WINDOW_S:
                self._marks.popleft()

    def expect(self, lag: int) -> None:
        """So many records wait now."""
        with self._lock:
            self._lag = lag

    def snapshot(self) -> Snapshot:
        with self._lock:
            since, before = self._marks[0]
            elapsed = self.clock() - since
            rate = (self._records - before) / elapsed if elapsed > 0 else 0.0
            return Snapshot(
                self.name,
                self.kind,
                self._state,
                self._note,
                self._records,
                self._batches,
                self._lost,
                rate,
                self._lag,
            )


@dataclass(frozen=True)
class Snapshot:
    pipeline: str
    kind: str
    state: str
    note: str
    records: int
    batches: int
    gaps: int
    rate: float
    lag: int | None

    @property
    def seconds_left(self) -> float | None:
        if self.lag is None or (self.lag and self.rate <= 0):
            return None
        return self.lag / self.rate if self.lag else 0.0

    def as_json(self) -> dict[str, Any]:
        left = self.seconds_left
        return {
            "pipeline": self.pipeline,
            "kind": self.kind,
            "state": self.state,
            **({"note": self.note} if self.note else {}),
            "records": self.records,
            "batches": self.batches,
            "gaps": self.gaps,
            "rate": round(self.rate, 1),
            "lag": self.lag,
            "seconds_left": None if left is None else round(left, 1),
        }

    def as_text(self) -> str:
        parts = [f"{self.pipeline} ({self.kind}) {self.state}", f"{self.records:,} records"]
        if self.rate >= 1:
            parts.append(f"{self.rate:,.0f}/s")
        if self.gaps:
            parts.append(f"{self.gaps:,} gaps")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.seconds_left:
            parts.append(f"{self.seconds_left:,.0f} s left")
        return ", ".join(parts) + (f": {self.note}" if self.note else "")


@dataclass
class Lines:
    """A line whenever figures changed: JSON for machines, text for logs."""

    out: IO[str]
    as_json: bool
    # A log read by people should not grow by a line per micro-batch; what changed its state always shows.
    pause_s: float
    _shown: dict[str, tuple[float, Snapshot]] = field(default_factory=dict)

    def show(self, snapshots: list[Snapshot], *, last: bool = False) -> None:
        now = time.monotonic()
        for one in snapshots:
            at, before = self._shown.get(one.pipeline, (0.0, None))
            if before is not None and _same(before, one):
                continue
            due = last or before is None or before.state != one.state or now - at >= self.pause_s
            if due:
                self._shown[one.pipeline] = (now, one)
                text = json.dumps(one.as_json()) if self.as_json else one.as_text()
                print(text, file=self.out, flush=True)


def _same(before: Snapshot, after: Snapshot) -> bool:
    """Rates fall by themselves; that alone is no news."""
    return (before.state, before.note, before.batches, before.lag) == (
        after.state,
        after.note,
        after.batches,
        after.lag,
    )
