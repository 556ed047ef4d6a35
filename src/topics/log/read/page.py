"""A page of records: from a cursor over the gap before it to rows. One path for diff, streams and sockets.

Order of questions for each seq is fixed: below the floor, expired, deleted, own node. A yes skips it in
silence and still moves the cursor; only the loss line and holes speak up.
"""

from __future__ import annotations

import numpy as np

from topics.log.core import Core
from topics.log.read.render import STORED, Shape, gather
from topics.log.read.tombstone import Tombstone, locate
from topics.log.remove.removal import surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage.columns import Columns


class Page:
    """What one read found. `rows` is newline-terminated JSON, ready to be framed."""

    __slots__ = (
        "cold_reads",
        "count",
        "earliest_seq",
        "head_seq",
        "next_from_seq",
        "rows",
        "scanned",
        "tombstone",
    )

    def __init__(self, topic: Topic, position: int, gap: Tombstone | None) -> None:
        self.rows = b""
        self.count = 0
        self.scanned = 0
        # Segments of the second tier that had to be opened for it.
        self.cold_reads = 0
        self.next_from_seq = position
        self.tombstone = gap
        self.head_seq = topic.head
        self.earliest_seq = topic.floor

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


def read(
    core: Core,
    topic: Topic,
    from_seq: int,
    limit: int,
    max_bytes: int,
    *,
    nodes: frozenset[str] | None = None,
    shape: Shape = STORED,
    epoch: int | None = None,
    upto: int | None = None,
) -> Page:
    """One page of records above a cursor: the read path of every protocol."""
    if topic.config.ttl_ms:
        core.refresh(topic)
    if not topic.config.dedupe_node:
        nodes = None
    return surviving_damage(
        topic,
        lambda: read_page(
            topic, from_seq, limit, max_bytes, nodes=nodes, shape=shape, epoch=epoch, upto=upto
        ),
    )


def read_page(
    topic: Topic,
    from_seq: int,
    limit: int,
    max_bytes: int,
    *,
    nodes: frozenset[str] | None = None,
    shape: Shape = STORED,
    epoch: int | None = None,
    upto: int | None = None,
) -> Page:
    """Records above `from_seq` (and not above `upto`), after retention has been applied by the caller."""
    position, gap, stop_before = locate(topic, from_seq, epoch)
    if upto is not None:
        stop_before = min(stop_before, upto + 1)
    page = Page(topic, position, gap)
    if position < stop_before - 1:
        before = topic.store.cold_reads
        _walk(topic, page, stop_before, limit, max_bytes, nodes, shape)
        page.cold_reads = topic.store.cold_reads - before
    return page


def _walk(
    topic: Topic,
    page: Page,
    stop_before: int,
    limit: int,
    max_bytes: int,
    nodes: frozenset[str] | None,
    shape: Shape,
) -> None:
    """Deliver from the runs between cursor and `stop_before`; the cursor passes all that was examined."""
    parts: list[bytes] = []
    budget = max_bytes
    for run, start, stop in topic.stretches(max(page.next_from_seq + 1, topic.floor), stop_before):
        if page.count >= limit:
            break
        taken = _take(topic, run, start, stop, limit - page.count, budget, not parts, nodes, shape)
        page.scanned += taken.examined - start
        if taken.count:
            parts.append(taken.rows)
            page.count += taken.count
        page.next_from_seq = run.base + taken.examined - 1
        if taken.examined < stop:
            break
        if page.count < limit:
            budget -= taken.size(run, start)
    else:
        # Nothing readable is left below the bound: what remains was skipped in silence.
        if page.count < limit:
            page.next_from_seq = stop_before - 1
    page.rows = parts[0] if len(parts) == 1 else b"".join(parts)


class _Taken:
    """Rows from one run, and the index up to which its seqs were examined."""

    __slots__ = ("_size", "count", "examined", "rows")

    def __init__(self, rows: bytes, count: int, examined: int, size: int | None) -> None:
        self.rows = rows
        self.count = count
        self.examined = examined
        self._size = size

    def size(self, run: Run, start: int) -> int:
        """What the rows count for; only asked for when the read goes on into another run."""
        if self._size is None:
            assert run.hot is not None
            return run.hot.size_between(start, self.examined)
        return self._size


def _take(
    topic: Topic,
    run: Run,
    start: int,
    stop: int,
    room: int,
    budget: int,
    is_first: bool,
    nodes: frozenset[str] | None,
    shape: Shape,
) -> _Taken:
    if not run.live_count:
        return _Taken(b"", 0, stop, 0)
    hot = run.hot
    if (
        hot is not None
        and run.dead is None
        and (nodes is None or hot.node_codes is None)
        and shape.data
        and (shape.meta or hot.meta_lens is None)
        and not (shape.tags and hot.tag_codes is not None)
    ):
        end = min(stop, start + room)
        first_byte = hot.ends[start - 1] if start else 0
        last_byte = hot.ends[end - 1]
        # A row is always longer than what it counts for, so a slice within the budget needs no counting.
        if last_byte - first_byte <= budget:
            return _Taken(bytes(memoryview(hot.rows)[first_byte:last_byte]), end - start, end, None)
    return _take_filtered(topic, run, start, stop, room, budget, is_first, nodes, shape)


def _take_filtered(
    topic: Topic,
    run: Run,
    start: int,
    stop: int,
    room: int,
    budget: int,
    is_first: bool,
    nodes: frozenset[str] | None,
    shape: Shape,
) -> _Taken:
    columns = topic.store.columns(run)
    wanted = survivors(run, columns, start, stop, nodes)
    examined = stop
    if len(wanted) >= room:
        wanted = wanted[:room]
        examined = int(wanted[-1]) + 1
        if columns.start_of(examined) - columns.start_of(start) <= budget:
            # Again nothing has to be counted: the page is full, so that its size is not asked for either.
            return _Taken(gather(columns, wanted, shape), room, examined, None)
    sizes = np.cumsum(columns.sizes(start, examined)[wanted - start])
    fitting = int(np.searchsorted(sizes, budget, side="right"))
    if is_first:
        fitting = max(fitting, 1)  # one over-sized record is delivered alone
    if fitting < len(wanted):
        # The record that did not fit was not examined; everything skipped before it was.
        examined = int(wanted[fitting])
        wanted = wanted[:fitting]
    size = int(sizes[len(wanted) - 1]) if len(wanted) else 0
    return _Taken(gather(columns, wanted, shape), len(wanted), examined, size)


def survivors(run: Run, columns: Columns, start: int, stop: int, nodes: frozenset[str] | None) -> np.ndarray:
    """Indexes of the records in a stretch that are alive and not from the reader's own nodes."""
    if run.dead is None:
        wanted = np.arange(start, stop)
    else:
        wanted = np.flatnonzero(np.frombuffer(run.dead, np.uint8)[start:stop] == 0) + start
    node_codes = columns.node_codes
    if nodes and node_codes is not None:
        own = [code for code, name in enumerate(columns.nodes, 1) if name in nodes]
        if own:
            wanted = wanted[~np.isin(node_codes[wanted], own)]
    return wanted
