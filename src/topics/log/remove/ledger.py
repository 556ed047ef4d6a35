"""Why each seq below the floor is gone. Watermarks cannot tell deleted from lost; an audit must.

Ranges are merged as they are added, in three flat columns, so a topic that only ever evicts keeps one range.
A client that deletes every other record makes them as many as there are records. Beyond a bound the oldest
are told with less detail: two neighbours become one, as lost as the worse of them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

DELETED, CAP, TTL, TRIM, LOST = range(5)
KIND_NAMES = ("deleted", "cap", "ttl", "trim", "lost")
# 17 bytes each.
MAX_RANGES = 1 << 20


class Ledger:
    __slots__ = ("firsts", "kinds", "lasts")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.kinds = bytearray()

    def add(self, first: int, last: int, kind: int) -> None:
        """Ranges arrive in ascending order, because the floor only rises."""
        if last < first:
            return
        if self.kinds and self.kinds[-1] == kind and self.lasts[-1] + 1 == first:
            self.lasts[-1] = last
            return
        self.firsts.append(first)
        self.lasts.append(last)
        self.kinds.append(kind)
        if len(self.kinds) > MAX_RANGES:
            self._coarsen(MAX_RANGES // 2)

    def _coarsen(self, count: int) -> None:
        """Make half as many of so many ranges at the beginning, and no deletion of what was lost."""
        firsts, lasts = self.firsts[:count:2], self.lasts[1:count:2]
        kinds = bytes(map(max, self.kinds[:count:2], self.kinds[1:count:2]))
        self.firsts[:count], self.lasts[:count], self.kinds[:count] = firsts, lasts, kinds

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.firsts, self.lasts, self.kinds, strict=True)

    def ranges_above(self, seq: int) -> Iterator[tuple[int, int, int]]:
        """Those that end above a seq."""
        at = bisect_right(self.lasts, seq)
        return zip(self.firsts[at:], self.lasts[at:], self.kinds[at:], strict=True)

    def kind_of(self, seq: int) -> int | None:
        """Why this seq is gone, if it is in here."""
        at = bisect_left(self.lasts, seq)
        return self.kinds[at] if at < len(self.kinds) and self.firsts[at] <= seq else None

    def dump(self) -> tuple[bytes, bytes, bytes]:
        return self.firsts.tobytes(), self.lasts.tobytes(), bytes(self.kinds)

    def load(self, dumped: tuple[bytes, bytes, bytes]) -> None:
        self.firsts, self.lasts = array("q"), array("q")
        self.firsts.frombytes(dumped[0])
        self.lasts.frombytes(dumped[1])
        self.kinds = bytearray(dumped[2])
