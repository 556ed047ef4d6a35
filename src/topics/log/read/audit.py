"""Why each missing seq of a topic is missing: the whole account, for those who have to reconcile."""

from collections.abc import Iterator

import numpy as np

from topics.log.remove import ledger
from topics.log.run import Run
from topics.log.topic import Topic

Range = tuple[int, int, int]


def missing_ranges(topic: Topic) -> list[Range]:
    """First seq, last seq and kind of every stretch that cannot be read any more: ascending and merged.

    Below the floor the ledger has it, deletions above the floor are marked in their runs, and holes are
    where nothing is. A hole was noted when it was found, whatever has passed over it since.
    """
    holes = [(hole.first, hole.last, hole.kind) for hole in topic.holes]
    told = [*topic.ledger.ranges(), *(r for run in topic.runs for r in _deleted_in(topic, run))]
    account = ledger.Ledger()
    for first, last, kind in sorted([*holes, *_without(told, holes)]):
        account.add(first, last, kind)
    return list(account.ranges())


def _deleted_in(topic: Topic, run: Run) -> Iterator[Range]:
    """Deleted stretches of a run, above the floor and up to the visible head."""
    first, last = max(run.base, topic.floor), min(run.last, topic.head)
    if last < first or not (run.dead_count or not run.live_count):
        return
    if not run.live_count:
        yield first, last, ledger.DELETED
        return
    topic.load_marks(run)
    if run.dead is None:
        return
    marks = np.frombuffer(run.dead, np.uint8)[first - run.base : last - run.base + 1]
    edges = np.flatnonzero(np.diff(marks, prepend=0, append=0))
    for begin, end in zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True):
        yield first + begin, first + end - 1, ledger.DELETED


def _without(ranges: list[Range], holes: list[Range]) -> Iterator[Range]:
    """The ranges with what the holes account for taken out."""
    for first, last, kind in ranges:
        for hole_first, hole_last, _ in holes:
            if hole_last < first or hole_first > last:
                continue
            if hole_first > first:
                yield first, hole_first - 1, kind
            first = hole_last + 1
        if first <= last:
            yield first, last, kind
