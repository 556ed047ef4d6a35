"""Removal somebody asked for: permanent, immediate, silent, and bounded by the head at the time of asking."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec
import numpy as np

from topics.log import ledger
from topics.log.run import Run
from topics.log.tags import TagMatch
from topics.log.topic import Topic


class Selector(msgspec.Struct, array_like=True, gc=False):
    """What a Delete frame carries. `bound` is one past the last seq that existed when it was ordered."""

    bound: int
    before: int | None = None
    tag: str | None = None
    is_prefix: bool = False
    seqs: list[int] | None = None

    @property
    def match(self) -> TagMatch | None:
        return None if self.tag is None else TagMatch(self.tag, self.is_prefix)


def apply(topic: Topic, selector: Selector) -> int:
    """Delete what the selector names; returns how many records were live until now."""
    limit = selector.bound if selector.before is None else min(selector.before, selector.bound)
    match = selector.match
    if selector.seqs is not None:
        deleted = _delete_seqs(topic, [s for s in selector.seqs if s < limit])
    elif match is not None:
        deleted = _delete_tagged(topic, match, limit)
    else:
        topic.delete_below = max(topic.delete_below, limit)
        return topic.drop_front(limit - 1, ledger.DELETED)[0] if limit > topic.floor else 0
    if deleted:
        topic.settle_floor(topic.floor)
    return deleted


def _delete_seqs(topic: Topic, seqs: list[int]) -> int:
    """Delete by seq. Only runs that hold one of them are visited, however many the topic has."""
    deleted = at = 0
    remaining = sorted({seq for seq in seqs if seq >= topic.floor})
    while topic.runs and at < len(remaining):
        run = topic.runs[max(bisect_right(topic.bases, remaining[at]) - 1, 0)]
        stop = bisect_left(remaining, run.base + run.count, at)
        inside = [seq - run.base for seq in remaining[at:stop] if seq >= run.base]
        if inside and run.live_count:
            deleted += topic.mark_dead(run, np.array(inside, np.int64))
            _release_if_empty(topic, run)
        at = max(stop, at + 1)
    return deleted


def _delete_tagged(topic: Topic, match: TagMatch, limit: int) -> int:
    tags = topic.tags.prefix(match.value) if match.is_prefix else [match.value]
    hot_seqs: list[int] = []
    for tag in tags:
        seqs = topic.tags.exact(tag)
        hot_seqs.extend(seqs[: bisect_left(seqs, limit)])
    # Looked up before anything changes: a segment found damaged here starts the whole deletion again.
    sealed = [
        (run, _sealed_matches(topic, run, match, limit))
        for run in topic.runs
        if run.base < limit and run.hot is None and run.live_count
    ]
    for tag in tags:
        topic.tags.forget(tag, 0, limit - 1)
    deleted = _delete_seqs(topic, hot_seqs)
    for run, indexes in sealed:
        if len(indexes):
            deleted += topic.mark_dead(run, indexes)
            _release_if_empty(topic, run)
    return deleted


def _sealed_matches(topic: Topic, run: Run, match: TagMatch, limit: int) -> np.ndarray:
    """Indexes of the run's records between floor and limit that match, from the tags in its segment."""
    columns = topic.store.columns(run)
    tags = columns.tags
    start = bisect_left(tags, match.value)
    found: list[np.ndarray] = []
    for position in range(start, len(tags)):
        if not match.matches(tags[position]):
            break
        found.append(topic.store.tagged(run, position + 1))
    if not found:
        return np.empty(0, np.int64)
    indexes = np.sort(np.concatenate(found)).astype(np.int64)
    return indexes[(indexes >= topic.floor - run.base) & (indexes < limit - run.base)]


def _release_if_empty(topic: Topic, run: Run) -> None:
    """A run without a live record gives back memory and file at once; its place in the order stays.

    One that is not sealed yet does so too: it would never be sealed, and hold its journal for ever.
    """
    if run.live_count == 0:
        topic.forget_tags(run)
        topic.store.release(run)
