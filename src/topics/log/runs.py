"""The runs of one topic, and which of them has a seq."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeVar

from topics.core import InvariantViolated
from topics.log.run import Run
from topics.storage import I64

Seqs = TypeVar("Seqs", Sequence[int], I64)


class Runs(list[Run]):
    """Runs in the order of their seqs. They are changed by the methods of this class only."""

    __slots__ = ("bases",)

    def __init__(self) -> None:
        super().__init__()
        # The first seq of each run.
        self.bases: list[int] = []

    # --- changing ---------------------------------------------------------------------------------------

    def place(self, run: Run) -> None:
        """Put a run where its seqs belong."""
        index = bisect_right(self.bases, run.base)
        self.insert(index, run)
        self.bases.insert(index, run.base)

    def take_out(self, run: Run) -> None:
        index = bisect_left(self.bases, run.base)
        if index == len(self) or self[index] is not run:
            raise InvariantViolated(f"topic {run.topic_id} does not have the run at {run.base}")
        del self[index], self.bases[index]

    def take_last(self) -> Run:
        self.bases.pop()
        return self.pop()

    # --- finding ----------------------------------------------------------------------------------------

    def stretches(self, first: int, stop_before: int) -> Iterator[tuple[Run, int, int]]:
        """The walk over runs: each that has seqs from `first` up to but not including `stop_before`.

        With the index of the first such record in it, and one past the last; never an empty stretch.
        """
        for index in range(max(bisect_right(self.bases, first) - 1, 0), len(self)):
            run = self[index]
            base = run.base
            if base >= stop_before:
                return
            start, stop = max(first - base, 0), min(run.count, stop_before - base)
            if start < stop:
                yield run, start, stop

    def by_run(self, seqs: Seqs) -> Iterator[tuple[Run, Seqs]]:
        """Ascending seqs, together with the run that holds them.

        Those that no run holds, or one in which no record is live, are left out. Only runs that hold some of
        the seqs are looked at, however many there are.
        """
        at = 0
        while at < len(seqs):
            index = bisect_right(self.bases, int(seqs[at])) - 1
            run = self[index] if index >= 0 else None
            if run is None or seqs[at] >= run.base + run.count:
                if index + 1 == len(self):
                    return
                at = bisect_left(seqs, self.bases[index + 1], at)
                continue
            begin, at = at, bisect_left(seqs, run.base + run.count, at)
            if run.live_count:
                yield run, seqs[begin:at]

    def run_at(self, seq: int) -> Run | None:
        index = bisect_right(self.bases, seq) - 1
        return self[index] if index >= 0 and self[index].last >= seq else None
