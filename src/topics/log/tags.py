"""Ordered index from tag to seqs for the records in memory; sealed runs carry their own inside the segment.

Exact lookup is a dictionary access; a prefix is one contiguous range of the sorted keys. Keys are compared
as bytes are: code-point order of Python strings is UTF-8 byte order. The sorted view is brought up to date
only when a prefix is asked for, so writers never pay for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from sortedcontainers import SortedList

from topics.values.errors import invalid


class TagIndex:
    __slots__ = ("_fresh", "_seqs", "_sorted")

    def __init__(self) -> None:
        # Flat integers: a list of Python ones would cost four times as much per tagged record.
        self._seqs: dict[str, array[int]] = {}
        self._sorted: SortedList[str] = SortedList()
        self._fresh: list[str] = []

    def add(self, tag: str, seq: int) -> None:
        seqs = self._seqs.get(tag)
        if seqs is None:
            self._seqs[tag] = array("q", (seq,))
            self._fresh.append(tag)
        else:
            seqs.append(seq)

    def exact(self, tag: str) -> Sequence[int]:
        return self._seqs.get(tag, ())

    def prefix(self, prefix: str) -> list[str]:
        """Every tag that starts with `prefix`, ascending."""
        if self._fresh:
            self._sorted.update(self._fresh)
            self._fresh = []
        keys = self._sorted
        start = keys.bisect_left(prefix)
        found: list[str] = []
        for tag in keys.islice(start):
            if not tag.startswith(prefix):
                break
            found.append(tag)
        return found

    def forget(self, tag: str, first: int, last: int) -> None:
        """Drop the seqs of a tag from `first` to `last`, both included."""
        seqs = self._seqs.get(tag)
        if seqs is None:
            return
        del seqs[bisect_left(seqs, first) : bisect_right(seqs, last)]
        if seqs:
            return
        del self._seqs[tag]
        if self._fresh:
            self._sorted.update(self._fresh)
            self._fresh = []
        self._sorted.discard(tag)

    def forget_above(self, seq: int) -> None:
        """Drop everything above `seq` (records whose commit failed)."""
        for tag in list(self._seqs):
            self.forget(tag, seq + 1, self._seqs[tag][-1])


class TagMatch:
    """A tag predicate: one tag exactly, or every tag with a prefix."""

    __slots__ = ("is_prefix", "value")

    def __init__(self, value: str, is_prefix: bool) -> None:
        self.value = value
        self.is_prefix = is_prefix

    def matches(self, tag: str | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value

    def to_json(self) -> list[str]:
        return ["tag", "Glob", self.value + "*"] if self.is_prefix else ["tag", "Eq", self.value]


def parse_match(value: object) -> TagMatch:
    """`["tag","Eq",v]`, `["tag","Glob","p*"]`, or a bare string where a trailing star means Glob."""
    if isinstance(value, str):
        return TagMatch(value[:-1], True) if value.endswith("*") else TagMatch(value, False)
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(v, str) for v in value):
        raise invalid('match must be a string or ["tag", "Eq" | "Glob", value]')
    field, op, text = value
    if field != "tag":
        raise invalid('match: only "tag" can be matched')
    if op == "Eq":
        return TagMatch(text, False)
    if op != "Glob":
        raise invalid('match: the operator must be "Eq" or "Glob"')
    if not text.endswith("*"):
        raise invalid("match: a Glob value must end with *")
    return TagMatch(text[:-1], True)
