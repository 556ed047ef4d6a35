"""The next stretch of a source that routers have to deal with: its live records, and what was lost of it."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from topics.core import MAX_HOPS
from topics.log import Run, Topic, few_records, survivors
from topics.log.remove import ledger
from topics.storage import Records, join_records


@dataclass(slots=True)
class SourceWindow:
    # Every seq up to here, above where the router stood, is in `rows`, in `lost`, or was deleted.
    last: int
    rows: Records
    # Ranges, and how many routers their loss has come through already.
    lost: list[tuple[int, int, int]]
    # The journal holds the originals from `position` on, until their run is sealed.
    in_journal: bool
    position: int


def read_window(source: Topic, after: int, max_records: int, max_bytes: int, upto: int) -> SourceWindow:
    """Seqs above `after`, up to `upto`, or to as many records as one step may move."""
    parts: list[Records] = []
    last = upto
    in_journal, position = True, 0
    for run, start, stop in source.runs.stretches(max(after + 1, source.floor), upto + 1):
        if not run.live_count:
            continue
        if max_records <= 0 or max_bytes <= 0:
            last = run.base - 1
            break
        part, size, next_index = _take(source, run, start, stop, max_records, max_bytes)
        if part:
            parts.append(part)
            position = run.start_position if len(parts) == 1 else min(position, run.start_position)
            in_journal = in_journal and _is_in_journal(run)
        if next_index is not None:
            last = run.base + next_index - 1
            break
        max_records -= len(part)
        max_bytes -= size
    return SourceWindow(last, join_records(parts), _lost(source, after + 1, last), in_journal, position)


def _take(
    source: Topic, run: Run, start: int, stop: int, max_records: int, max_bytes: int
) -> tuple[Records, int, int | None]:
    """Live records of a stretch, what they count for, and the index of the first that is too much."""
    few = few_records(run, start, stop, max_bytes) if stop - start <= max_records else None
    if few is not None:
        return few, few.size, None
    columns = source.store.columns(run)
    alive = survivors(run, columns, start, stop, None)
    sizes = np.cumsum(columns.sizes(start, stop)[alive - start])
    fitting = min(max_records, max(int(np.searchsorted(sizes, max_bytes, side="right")), 1))
    if fitting < len(alive):
        return columns.records(alive[:fitting]), int(sizes[fitting - 1]), int(alive[fitting])
    return columns.records(alive), int(sizes[-1]) if len(alive) else 0, None


def _is_in_journal(run: Run) -> bool:
    """True when recovery will meet every record of this run in a frame that lineage understands."""
    return run.sealed is None and not run.ephemeral and run.framed


def _lost(source: Topic, first: int, last: int) -> list[tuple[int, int, int]]:
    """Ranges of which readers were or will be told; of what was deleted they are not.

    A loss travels as far as a record would have, or it would never come to rest in a loop. It sets out here
    if it happened here: how far the record had come is lost with it.
    """
    ranges: list[tuple[int, int, int]] = []
    if first < source.floor:
        account = source.ledger
        for at in range(bisect_left(account.lasts, first), len(account.lasts)):
            if account.firsts[at] > last:
                break
            if account.kinds[at] != ledger.DELETED:
                ranges.append((account.firsts[at], account.lasts[at], 0))
    for hole in reversed(source.holes):
        if hole.last < first:
            break
        ranges.append((hole.first, hole.last, hole.hops if hole.kind == ledger.TRIM else 0))
    merged: list[tuple[int, int, int]] = []
    position = first
    for begin, end, hops in sorted(ranges):
        begin, end = max(begin, position), min(end, last)
        if begin > end:
            continue
        position = end + 1
        if hops >= MAX_HOPS:
            continue
        if merged and merged[-1][1:] == (begin - 1, hops):
            merged[-1] = (merged[-1][0], end, hops)
        else:
            merged.append((begin, end, hops))
    return merged
