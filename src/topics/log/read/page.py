"""A page of records: from a cursor over the gap before it to rows. One path for diff, streams and sockets.

Order of questions for each seq is fixed: below the floor, expired, deleted, own node. A yes skips it in
silence and still moves the cursor; only the loss line and holes speak up.
"""

from dataclasses import dataclass

import numpy as np

from topics.log.engine import Engine
from topics.log.read.filter import EVERYTHING, Choice
from topics.log.read.render import STORED, Shape, gather, gather_alive
from topics.log.read.tombstone import Tombstone, locate
from topics.log.remove.removal import surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic


@dataclass(slots=True)
class Page:
    """What one read found. `rows` is newline-terminated JSON, ready to be framed."""

    next_from_seq: int
    tombstone: Tombstone | None
    head_seq: int
    earliest_seq: int
    rows: bytes = b""
    count: int = 0
    scanned: int = 0
    # Segments of the second tier that had to be opened for it.
    cold_reads: int = 0

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


def read_page(
    engine: Engine,
    topic: Topic,
    from_seq: int,
    limit: int,
    max_bytes: int,
    *,
    nodes: frozenset[str] | None = None,
    shape: Shape = STORED,
    epoch: int | None = None,
    upto: int | None = None,
    choice: Choice | None = None,
) -> Page:
    """One page of records above a cursor: the read path of every protocol."""
    if topic.config.ttl_ms:
        engine.refresh(topic)
    if not topic.config.dedupe_node:
        nodes = None
    return _read_page(topic, from_seq, epoch, upto, limit, max_bytes, nodes, shape, choice)


@surviving_damage
def _read_page(
    topic: Topic,
    from_seq: int,
    epoch: int | None,
    upto: int | None,
    limit: int,
    max_bytes: int,
    nodes: frozenset[str] | None,
    shape: Shape,
    choice: Choice | None,
) -> Page:
    position, gap, stop_before = locate(topic, from_seq, epoch)
    if upto is not None:
        stop_before = min(stop_before, upto + 1)
    page = Page(position, gap, topic.head, topic.floor)
    if position < stop_before - 1:
        before = topic.store.cold_reads
        _PageWalk(topic, page, limit, max_bytes, nodes, shape, choice).go(stop_before)
        page.cold_reads = topic.store.cold_reads - before
    return page


# A reader with a choice has to look at records that it does not want. A page that has cost so much ends, even
# if it is empty: no other client is served while it is made.
MOST_EXAMINED = 100_000
# Rows from one run, how many, the index up to which its seqs were examined, and what the rows count for, if
# that had to be worked out.
_Taken = tuple[bytes, int, int, int | None]


@dataclass(slots=True)
class _PageWalk:
    """From run to run, until the page has so many records or so many bytes."""

    topic: Topic
    page: Page
    room: int
    budget: int
    nodes: frozenset[str] | None
    shape: Shape
    choice: Choice | None
    # How many records were looked at because of the choice.
    examined: int = 0

    def go(self, stop_before: int) -> None:
        """Deliver what lies between cursor and `stop_before`; the cursor passes all that was examined."""
        topic, page = self.topic, self.page
        parts: list[bytes] = []
        for run, start, stop in topic.runs.stretches(max(page.next_from_seq + 1, topic.floor), stop_before):
            if not self.room:
                break
            rows, count, examined, size = self._take(run, start, stop)
            page.scanned += examined - start
            if count:
                parts.append(rows)
                page.count += count
                self.room -= count
            page.next_from_seq = run.base + examined - 1
            if examined < stop:
                break
            if self.room:
                if size is None:
                    assert run.hot is not None
                    size = run.hot.size_between(start, examined)
                self.budget -= size
        else:
            # Nothing readable is left below the bound: what remains was skipped in silence.
            if self.room:
                page.next_from_seq = stop_before - 1
        page.rows = parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, run: Run, start: int, stop: int) -> _Taken:
        choice = self.choice
        if not run.live_count or (choice is not None and choice.is_outside(run)):
            return b"", 0, stop, 0
        if choice is not None:
            stop = min(stop, start + MOST_EXAMINED - self.examined)
            self.examined += stop - start
            return self._take_filtered(run, start, stop) if start < stop else (b"", 0, start, 0)
        hot = run.hot
        if (
            hot is not None
            and (self.nodes is None or not hot.has_nodes)
            and (self.shape is STORED or self.shape.is_stored(hot))
        ):
            if run.dead is not None:
                found = gather_alive(hot, run.dead, start, stop, self.room, self.budget)
                if found is not None:
                    return found[0], self.room, found[1], None
                return self._take_filtered(run, start, stop)
            end = min(stop, start + self.room)
            first_byte = hot.ends[start - 1] if start else 0
            last_byte = hot.ends[end - 1]
            # A row is always longer than what it counts for: a slice within the budget needs no counting.
            if last_byte - first_byte <= self.budget:
                return bytes(memoryview(hot.rows)[first_byte:last_byte]), end - start, end, None
        return self._take_filtered(run, start, stop)

    def _take_filtered(self, run: Run, start: int, stop: int) -> _Taken:
        columns = self.topic.store.columns(run)
        wanted = (self.choice or EVERYTHING).survivors(run, columns, start, stop, self.nodes)
        examined = stop
        if len(wanted) >= self.room:
            wanted = wanted[: self.room]
            examined = int(wanted[-1]) + 1
            if columns.start_of(examined) - columns.start_of(start) <= self.budget:
                # Again nothing has to be counted: the page is full, so that its size is not asked for either.
                return gather(columns, wanted, self.shape), len(wanted), examined, None
        sizes = np.cumsum(columns.sizes(start, examined)[wanted - start])
        fitting = int(np.searchsorted(sizes, self.budget, side="right"))
        if not self.page.count:
            fitting = max(fitting, 1)  # one over-sized record is delivered alone
        if fitting < len(wanted):
            # The record that did not fit was not examined; everything skipped before it was.
            examined = int(wanted[fitting])
            wanted = wanted[:fitting]
        size = int(sizes[len(wanted) - 1]) if len(wanted) else 0
        return gather(columns, wanted, self.shape), len(wanted), examined, size
