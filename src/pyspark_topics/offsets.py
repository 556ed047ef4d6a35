"""Positions in topics: what users may ask for, and what Spark keeps in its checkpoints.

An offset is a cursor: a read from offset 41 to offset 50 returns seqs 42 to 50. It has the epoch of the
topic, so that a topic that was deleted and created again is never read from the middle.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

# What Kafka users write for the two ends of a topic.
_LATEST, _EARLIEST = -1, -2
# The epoch of a topic that does not exist yet; real ones are larger.
NO_EPOCH = 0
# In place of the epoch of a topic that was on another server: no server counts that far.
ELSEWHERE = 2**63 - 1
# Before the first record of any topic.
ORIGIN = 0


class StreamOffset(NamedTuple):
    """Everything up to and including `seq` of this life of the topic has been passed."""

    seq: int
    epoch: int

    def leads_to(self, end: Self) -> bool:
        """False when the topic began anew in between, or its head fell back: the two cannot be compared."""
        return self.epoch == end.epoch and self.seq <= end.seq


Offsets = dict[str, StreamOffset]


@dataclass(frozen=True)
class Bound:
    """An end of a read: one word for all topics, or a position for some and the word for the others."""

    word: str
    seqs: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    def word_for(self, topic: str) -> str:
        return self.words.get(topic, self.word)


def parse_bound(text: str) -> Bound:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(word)
    try:
        entries = json.loads(text)
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise ValueError('it has to be "earliest", "latest" or JSON like {"orders": 41}')
    seqs, epochs, words = {}, {}, {}
    for topic, value in entries.items():
        if _is_position(value):
            seqs[topic] = value["seq"]
            if "epoch" in value:
                epochs[topic] = value["epoch"]
        elif value in ("earliest", _EARLIEST):
            words[topic] = "earliest"
        elif value in ("latest", _LATEST):
            words[topic] = "latest"
        elif _is_seq(value):
            seqs[topic] = value
        else:
            raise ValueError(f'the position of "{topic}" has to be a seq, "earliest" or "latest"')
    return Bound("", seqs, epochs, words)


def _is_position(value: object) -> bool:
    if not isinstance(value, dict) or "seq" not in value:
        return False
    return set(value) <= {"seq", "epoch", "head"} and all(map(_is_seq, value.values()))


def _is_seq(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Stored(NamedTuple):
    """Offsets as they are in a checkpoint, and the servers they belong to where there are several."""

    offsets: Offsets
    homes: Mapping[str, str] = MappingProxyType({})
    # Where topics ended that had more than was read: if such a life is over, the rest of it is lost.
    heads: Mapping[str, int] = MappingProxyType({})


def to_json(
    offsets: Offsets, homes: Mapping[str, str] | None = None, heads: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Sorted, because Spark tells offsets apart by their text. Topics of several servers stand under theirs.

    {"orders": {"seq": 41, "epoch": 7}}    {"http://a:4000": {"orders": {"seq": 41, "epoch": 7}}}

    Where the topic had more than that: {"orders": {"seq": 41, "epoch": 7, "head": 90}}
    """
    stored: dict[str, Any] = {}
    for topic, at in sorted(offsets.items()):
        home = (homes or {}).get(topic)
        head = (heads or {}).get(topic, ORIGIN)
        more = {"head": head} if head > at.seq else {}
        (stored.setdefault(home, {}) if home else stored)[topic] = {"seq": at.seq, "epoch": at.epoch} | more
    return dict(sorted(stored.items()))


def from_json(stored: Mapping[str, Any]) -> Offsets:
    return read_stored(stored).offsets


def read_stored(stored: Mapping[str, Any]) -> Stored:
    topics: dict[str, Any] = {}
    homes: dict[str, str] = {}
    for name, value in stored.items():
        if "/" in name and isinstance(value, dict):  # an address; no topic is called like that
            topics |= value
            homes |= dict.fromkeys(value, name)
        else:
            topics[name] = value
    offsets = {topic: _position(topic, at) for topic, at in topics.items()}
    heads = {topic: at["head"] for topic, at in topics.items() if _is_seq(at.get("head"))}
    return Stored(offsets, homes, heads)


def _position(topic: str, at: Any) -> StreamOffset:
    if not isinstance(at, dict) or not _is_seq(at.get("seq")) or not _is_seq(at.get("epoch")):
        raise ValueError(
            f'the checkpoint holds {json.dumps(at)} as the offset of topic "{topic}", which this version '
            "did not write: start the query with a new checkpointLocation"
        )
    return StreamOffset(at["seq"], at["epoch"])


def seen_from(start: Stored, homes: Mapping[str, str]) -> Offsets:
    """Return the offsets to continue from, given the servers that the topics are on now.

    A topic that is on another server is another one, even if both servers count the same epoch.
    """
    found = dict(start.offsets)
    for topic, at in start.offsets.items():
        was, is_now = start.homes.get(topic), homes.get(topic)
        if was and is_now and was != is_now and at.epoch != NO_EPOCH:
            found[topic] = StreamOffset(at.seq, ELSEWHERE)
    return found


@dataclass(frozen=True)
class TopicView:
    """A topic as the server described it at one moment."""

    name: str
    epoch: int
    head: int
    floor: int

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["topic"], state["epoch"], state["head_seq"], state["earliest_seq"])

    @property
    def end(self) -> StreamOffset:
        return StreamOffset(self.head, self.epoch)

    def records_between(self, start: StreamOffset, end: StreamOffset) -> int:
        """At most so many records lie there; what is dead at the front costs nothing to pass."""
        begin = start.seq if start.leads_to(end) else ORIGIN
        if end.epoch == self.epoch:
            begin = max(begin, self.floor - 1)
        return max(end.seq - begin, 0)


def advance(start: Offsets, views: Iterable[TopicView], limit: int | None) -> Offsets:
    """Return the end of the next micro-batch: the heads, or `limit` records in proportion to the lag.

    A topic that is gone keeps its position: if it comes back, its new epoch tells.
    """
    views = list(views)
    end = dict(start)
    waiting = {}
    for view in views:
        at = start.get(view.name, StreamOffset(ORIGIN, view.epoch))
        end[view.name] = at
        if at != view.end:
            waiting[view] = view.records_between(at, view.end)
    total = sum(waiting.values())
    room = total if limit is None else limit
    # The longest queue first: with less room than topics, none waits for ever.
    for view, count in sorted(waiting.items(), key=lambda item: -item[1]):
        # A proportional part, and never nothing while there is room.
        share = count if room >= total else min(max(room * count // total, min(room, 1)), count)
        room -= share
        total -= count
        end[view.name] = view.end if share >= count else _forward(view, end[view.name], share)
    return end


def heads_of(end: Offsets, views: Iterable[TopicView], before: Mapping[str, int]) -> dict[str, int]:
    """Return the heads of topics; for a topic that is gone, the head that was known before."""
    known = {view.name: view.head for view in views if end[view.name].epoch == view.epoch}
    return {**before, **known}


def _forward(view: TopicView, at: StreamOffset, count: int) -> StreamOffset:
    if not count:
        return at
    begin = at.seq if at.leads_to(view.end) else ORIGIN
    return StreamOffset(max(begin, view.floor - 1) + count, view.epoch)


Range = tuple[int, int]


@dataclass(frozen=True)
class SeqSet:
    """Ranges with both ends included: ascending, apart from each other, none of them empty."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Self:
        """From ranges in any order, which may overlap or be empty."""
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if last < first:
                continue
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: Self) -> Self:
        return self.of((*self.ranges, *other.ranges))

    def __sub__(self, other: Self) -> Self:
        return type(self)(tuple(self._without(other)))

    def __and__(self, other: Self) -> Self:
        return self - (self - other)

    def _without(self, other: Self) -> Iterator[Range]:
        gone = iter(other.ranges)
        current = next(gone, None)
        for first, last in self.ranges:
            while current is not None and current[1] < first:
                current = next(gone, None)
            at = first
            while current is not None and current[0] <= last:
                if current[0] > at:
                    yield at, current[0] - 1
                at = current[1] + 1
                if current[1] > last:
                    break  # the next range may need it, too
                current = next(gone, None)
            if at <= last:
                yield at, last
