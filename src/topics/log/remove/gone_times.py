"""When seqs went: a few stretches with the time between which they did, as long as the process runs.

For people who ask, not for readers: nothing depends on it, and it is not kept in files. What goes within the
same second is one stretch. When there are too many, the two oldest become one that covers both.
"""

from array import array

MAX_STRETCHES = 24
_SAME_MS = 1000
# First seq, last seq, and the times between which they went.
_FIELDS = 4


class GoneTimes:
    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches = array("q")

    def note(self, first: int, last: int, ms: int) -> None:
        known = self._stretches
        if known and known[-3] + 1 == first and ms - known[-2] < _SAME_MS:
            known[-3] = last
            known[-1] = max(known[-1], ms)
            return
        known.extend((first, last, ms, ms))
        if len(known) > MAX_STRETCHES * _FIELDS:
            oldest, second = known[:_FIELDS], known[_FIELDS : 2 * _FIELDS]
            lows, highs = (oldest[0], second[0]), (oldest[1], second[1])
            joined = (min(lows), max(highs), min(oldest[2], second[2]), max(oldest[3], second[3]))
            known[: 2 * _FIELDS] = array("q", joined)

    def between(self, first: int, last: int) -> tuple[int, int] | None:
        """When some of these went; None if all were gone when the process started, or are still there."""
        begin = end = 0
        known = self._stretches
        for at in range(0, len(known), _FIELDS):
            if known[at] <= last and known[at + 1] >= first:
                begin = min(begin, known[at + 2]) if end else known[at + 2]
                end = max(end, known[at + 3])
        return (begin, end) if end else None
