"""How far pipelines have come: written by their threads, read by a display."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

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
        """So many records wait now."""
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
