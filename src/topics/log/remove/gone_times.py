"""When seqs went: a few stretches with the times between which they did.

For people who ask, not for readers: nothing depends on it. Snapshots keep it, and replay notes again what
went behind them. What goes within the same second, side by side, is one stretch. When there are too many,
neighbours in time become one that covers both: the longer ago, the wider, as people ask for times.
"""

from array import array

MAX_STRETCHES = 32
_SAME_MS = 1000
# First seq, last seq, and the times between which they went; 0 where it is not known since when.
_FIELDS = 4
# At first, what is joined may have taken so much of the time that has passed since.
_SPAN = 1 / 8


class GoneTimes:
    __slots__ = ("_stretches",)

    def __init__(self, packed: bytes = b"") -> None:
        self._stretches = array("q", packed)

    def note(self, first: int, last: int, after_ms: int, by_ms: int) -> None:
        """These went between the two times; before the second, if the first is 0."""
        known = self._stretches
        if known:
            begin, end = min(known[-2], after_ms), max(known[-1], by_ms)
            is_near = first <= known[-3] + 1 and last >= known[-4] - 1
            if is_near and end - begin < _SAME_MS:
                known[-_FIELDS:] = array("q", (min(known[-4], first), max(known[-3], last), begin, end))
                return
        known.extend((first, last, after_ms, by_ms))
        if len(known) > MAX_STRETCHES * _FIELDS:
            self._coarsen()

    def _coarsen(self) -> None:
        # A few fewer than may be, so that this is not done for each that comes.
        enough, span = max(MAX_STRETCHES * 3 // 4, 1) * _FIELDS, _SPAN
        latest = max(self._stretches[_FIELDS - 1 :: _FIELDS])
        while len(self._stretches) > enough:
            self._stretches = _joined(self._stretches, span, latest)
            span *= 2

    def between(self, first: int, last: int) -> tuple[int, int] | None:
        """When some of these went, the first time 0 if it is not known; None if all are still there."""
        begin = end = 0
        known = self._stretches
        for at in range(0, len(known), _FIELDS):
            if known[at] <= last and known[at + 1] >= first:
                begin = min(begin, known[at + 2]) if end else known[at + 2]
                end = max(end, known[at + 3])
        return (begin, end) if end else None

    def cut(self, head: int) -> None:
        """No seq above this was ever given out."""
        known = self._stretches
        self._stretches = array("q")
        for at in range(0, len(known), _FIELDS):
            if known[at] <= head:
                self._stretches.extend((known[at], min(known[at + 1], head), known[at + 2], known[at + 3]))

    def pack(self) -> bytes:
        return self._stretches.tobytes()


def _joined(known: "array[int]", span: float, latest: int) -> "array[int]":
    """With those as one that together took no more than this share of the time since."""
    joined = known[:_FIELDS]
    for at in range(_FIELDS, len(known), _FIELDS):
        first, last, after_ms, by_ms = known[at : at + _FIELDS]
        begin, end = min(joined[-2], after_ms), max(joined[-1], by_ms)
        if end - begin <= span * (latest - end + _SAME_MS):
            both = (min(joined[-4], first), max(joined[-3], last), begin, end)
            joined[-_FIELDS:] = array("q", both)
        else:
            joined.extend((first, last, after_ms, by_ms))
    return joined
