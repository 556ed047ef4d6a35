"""Ordered index from tag to seqs for the records in memory; sealed runs carry their own inside the segment.

The index is cut into generations, each the postings of a few consecutive runs. Records leave memory a run at
a time, oldest first, and a generation is thrown away as a whole when the last of its runs has gone: what
to forget need not be looked up tag by tag. Until then postings of runs that have left are still found, which
does no harm: their segment says the same.

Exact lookup is a dictionary access per generation; a prefix is one contiguous range of its sorted keys. Keys
are compared as bytes are: code-point order of Python strings is UTF-8 byte order. The sorted view is brought
up to date only when a prefix is asked for, so writers never pay for it.
"""

import sys
from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from topics import codec
from topics.codec.postings import OFFSET, Offsets
from topics.core import invalid
from topics.storage import I64

# Small enough to be sorted, or thrown away, in some milliseconds; large enough that a lookup asks only a few.
GENERATION_RECORDS = 32_768
# Postings are offsets from the generation's first seq, in 32 bits.
_MAX_SPAN = 1 << 31
# Seqs are put in order by marking them where at least one in so many is meant, and by sorting elsewhere.
_DENSE = 64
# So many new keys are put in their place one by one; more are sorted with the others, all at once.
_FEW_FRESH = 128


class Generation:
    __slots__ = ("_forgot", "_fresh", "_sorted", "base", "count", "last", "postings", "runs")

    def __init__(self, base: int) -> None:
        self.base = self.last = base
        self.count = 0
        # First seqs of the runs it speaks of and that are still in memory.
        self.runs: set[int] = set()
        self.postings: dict[str, Offsets] = {}
        # Tags that were forgotten stay in the sorted view, and one that comes back is in it twice.
        self._sorted: list[str] = []
        self._forgot = False
        self._fresh: list[str] = []

    def extend(self, tags: Sequence[str | None], first_seq: int) -> None:
        listed = tags if isinstance(tags, list) else [*tags]
        codec.post(listed, first_seq - self.base, self.postings, self._fresh)
        self.count += len(tags)
        self.last = max(self.last, first_seq + len(tags) - 1)

    def close(self) -> None:
        """It is full: give back what only growing needs, and share what all generations have."""
        if 2 * len(self.postings) > self.count:
            return
        self.postings = {
            sys.intern(tag): held if isinstance(held, int) else bytearray(held)
            for tag, held in self.postings.items()
        }

    @property
    def is_sorted(self) -> bool:
        return not self._fresh

    def sort(self) -> None:
        fresh, self._fresh = self._fresh, []
        if len(fresh) <= _FEW_FRESH:
            for tag in fresh:
                insort(self._sorted, tag)
        else:
            self._sorted += fresh
            self._sorted.sort()

    def prefix(self, prefix: str) -> list[str]:
        """Every tag that starts with `prefix`, ascending."""
        if self._fresh:
            self.sort()
        keys, behind = self._sorted, _behind(prefix)
        first = bisect_left(keys, prefix)
        found = keys[first : None if behind is None else bisect_left(keys, behind, first)]
        return list(dict.fromkeys(filter(self.postings.__contains__, found))) if self._forgot else found

    def matching(self, match: "TagMatch") -> Iterable[str]:
        if match.is_prefix:
            return self.prefix(match.value)
        return (match.value,) if match.value in self.postings else ()

    def seqs(self, tags: Iterable[str]) -> I64:
        held = [self.postings[tag] for tag in tags]
        single = [offsets for offsets in held if isinstance(offsets, int)]
        several = b"".join([offsets for offsets in held if not isinstance(offsets, int)])
        offsets = np.concatenate((np.array(single, np.uint32), np.frombuffer(several, np.uint32)))
        span = int(offsets.max(initial=0)) + 1
        if span > _DENSE * len(offsets):
            return np.sort(offsets).astype(np.int64) + self.base
        # Most of the time cheaper than sorting: tags by the hundred are found one behind the other.
        marks = np.zeros(span, np.bool_)
        marks[offsets] = True
        return np.flatnonzero(marks) + self.base

    def forget(self, tags: Iterable[str], first: int, stop: int) -> None:
        """Drop the seqs of these tags from `first` up to but not including `stop`."""
        if first <= self.base and self.last < stop:
            # All that it has, as usual. There may be as many tags as records: nothing is looked at.
            gone = [*tags]
            self._forgot |= bool(gone)
            if len(gone) == len(self.postings):
                self.postings = {}
            else:
                deque(map(self.postings.__delitem__, gone), maxlen=0)
            return
        for tag in tags:
            held = self.postings[tag]
            offsets = (held,) if isinstance(held, int) else array("I", held)
            if first <= self.base + offsets[0] and self.base + offsets[-1] < stop:
                del self.postings[tag]  # all of them, as usual
                self._forgot = True
                continue
            kept = [offset for offset in offsets if not first <= self.base + offset < stop]
            self.postings[tag] = bytearray(array("I", kept))


def _behind(prefix: str) -> str | None:
    """The first string above all that start with `prefix`; None where there is none."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


class TagIndex:
    __slots__ = ("_generations",)

    def __init__(self) -> None:
        self._generations: list[Generation] = []

    def extend(self, run_base: int, tags: Sequence[str | None], first_seq: int) -> None:
        """Index a batch of the run that begins at `run_base`. Seqs ascend within a generation."""
        generation = self._generations[-1] if self._generations else None
        if (
            generation is None
            or generation.count >= GENERATION_RECORDS
            or not generation.base <= first_seq < generation.base + _MAX_SPAN
        ):
            generation = Generation(first_seq)
            self._begin(generation)
        generation.runs.add(run_base)
        generation.extend(tags, first_seq)

    def add_run(self, run_base: int, tags: Sequence[str | None]) -> None:
        """Index a finished run. Newer records may be indexed already."""
        generation = Generation(run_base)
        generation.runs.add(run_base)
        generation.extend(tags, run_base)
        self._begin(generation)

    def _begin(self, generation: Generation) -> None:
        if self._generations:
            self._generations[-1].close()
        self._generations.append(generation)

    def matching(self, match: "TagMatch", first: int = 0) -> I64:
        """The seqs of all tags that match; those below `first` may be left out.

        Ascending within a generation. One that recovery filled with older records may follow newer ones.
        """
        found = [
            generation.seqs(generation.matching(match))
            for generation in self._generations
            if generation.last >= first
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def count(self, match: "TagMatch", enough: int = sys.maxsize) -> int:
        """How many records match; once there are enough, no more are counted."""
        count = 0
        for generation in self._generations:
            for tag in generation.matching(match):
                held = generation.postings[tag]
                count += 1 if isinstance(held, int) else len(held) // OFFSET.size
                if count >= enough:
                    return count
        return count

    def sort_in_steps(self) -> Iterator[None]:
        """Do ahead of a lookup by prefix what it would have to do at once."""
        for generation in [*self._generations]:
            if not generation.is_sorted:
                generation.sort()
                yield

    @property
    def unsorted(self) -> int:
        return sum(not generation.is_sorted for generation in self._generations)

    def forget(self, match: "TagMatch", stop: int) -> None:
        """Drop the seqs below `stop` of all tags that match."""
        for _ in self.forget_in_steps(match, stop):
            pass

    def forget_in_steps(self, match: "TagMatch", stop: int) -> Iterator[None]:
        """The same, some milliseconds at a time: until then seqs are found whose records are gone."""
        for generation in [*self._generations]:
            generation.forget(generation.matching(match), 0, stop)
            yield

    def forget_above(self, seq: int) -> None:
        """Drop everything above `seq` (records whose commit failed)."""
        for generation in self._generations:
            generation.forget(list(generation.postings), seq + 1, generation.base + 2 * _MAX_SPAN)

    def forget_run(self, run_base: int) -> None:
        """The run has left memory."""
        for generation in self._generations:
            generation.runs.discard(run_base)
        self._generations = [generation for generation in self._generations if generation.runs]


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
