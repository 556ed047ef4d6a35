"""Why each seq below the floor is gone. Watermarks cannot tell deleted from lost; an audit must.

Ranges are merged as they are added, in three flat columns, so a topic that only ever evicts keeps one range.
"""

from array import array
from collections.abc import Iterator

DELETED, CAP, TTL, TRIM, LOST = range(5)
KIND_NAMES = ("deleted", "cap", "ttl", "trim", "lost")


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

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.firsts, self.lasts, self.kinds, strict=True)

    def dump(self) -> tuple[bytes, bytes, bytes]:
        return self.firsts.tobytes(), self.lasts.tobytes(), bytes(self.kinds)

    def load(self, dumped: tuple[bytes, bytes, bytes]) -> None:
        self.firsts, self.lasts = array("q"), array("q")
        self.firsts.frombytes(dumped[0])
        self.lasts.frombytes(dumped[1])
        self.kinds = bytearray(dumped[2])
