"""One step of forwarding: decide what each router does with the next stretch of its source, and commit that.

window of the source ─▶ per router: filter, hops, keys, capacity ─▶ copies staged in the destinations
                     ─▶ one frame for all of them ─▶ committed: copies visible, cursors moved
"""

from dataclasses import dataclass, field

import numpy as np

from topics import codec
from topics.codec import Rows
from topics.core import MAX_HOPS, MAX_SEQ, InvariantViolated
from topics.flow.routers.copies import (
    Copies,
    PendingCopies,
    RouteOp,
    carry,
    copies_of,
    find_foreign_keys,
    known_copies,
    sizes_of,
)
from topics.flow.routers.definitions import (
    COPIES,
    HOLE_IN_FRONT,
    HOLE_INSIDE,
    CopyPlan,
    CopyRange,
    Router,
    Stamp,
    Step,
    encode,
)
from topics.log import (
    Engine,
    Run,
    Topic,
    cover,
    expire,
    extend_if_short,
    few_records,
    surviving_damage,
    survivors,
)
from topics.log.remove import ledger
from topics.storage import I64, FrameDraft, Kind, Records, join_records


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


@surviving_damage
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
        for begin, end, kind in source.ledger.ranges_above(first - 1):
            if begin > last:
                break
            if kind != ledger.DELETED:
                ranges.append((begin, end, 0))
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


UNLIMITED = 1 << 62


@dataclass(slots=True)
class Capacity:
    """What a destination can still take. Only a topic that rejects, or a full server, sets bounds."""

    records: int
    size: int
    # Bytes that it could take were it empty.
    when_empty: int = UNLIMITED

    def take(self, sizes: I64) -> int:
        """How many of these fit, from the front; they are taken as used."""
        used = np.cumsum(sizes)
        fitting = max(min(int(np.searchsorted(used, self.size, side="right")), self.records), 0)
        fitting = min(fitting, len(sizes))
        if fitting:
            self.records -= fitting
            self.size -= int(used[fitting - 1])
        return fitting

    def is_full(self, wanted_bytes: int) -> bool:
        """Whether a record of that size has to wait; one that can never fit waits for an empty topic."""
        return self.records < 1 or self.size < min(wanted_bytes, self.when_empty)


def is_bounded(engine: Engine, dest: Topic) -> bool:
    """Whether there is anything to ask; most destinations take whatever comes."""
    config = dest.config
    return (
        (config.discard == "reject" and bool(config.cap_records or config.cap_bytes))
        or engine.settings.max_total_bytes > 0
        or dest.assigned > MAX_SEQ >> 1
    )


def capacity_of(engine: Engine, dest: Topic) -> Capacity:
    """Counted like an ordinary write: what is on its way to disk takes room as well."""
    config = dest.config
    records, size, when_empty = MAX_SEQ - dest.assigned, UNLIMITED, UNLIMITED
    if config.discard == "reject":
        if config.cap_records:
            records = min(records, config.cap_records - dest.live_count - dest.pending_count)
        if config.cap_bytes:
            when_empty = config.cap_bytes
            size = when_empty - dest.live_bytes - dest.pending_bytes
    limit = engine.settings.max_total_bytes
    if limit:
        size = min(size, limit - engine.totals.bytes - engine.totals.pending_bytes)
        when_empty = min(when_empty, limit)
    return Capacity(records, size, when_empty)


# Destinations that extend their reservation ahead of need in one step; others do when they run out.
MAX_RESERVATIONS = 1000


@dataclass(slots=True)
class _DraftRange:
    """Consecutive destination seqs to be: copies of window rows, or (without any picked) lost seqs."""

    picked: I64 | None
    first_source: int
    count: int
    # As in the piece that it becomes.
    offsets: bytes = b""


@dataclass(slots=True)
class _Draft:
    """What one router will do: pieces in source order, and where it stops."""

    cursor: int
    seqs_needed: int = 0
    forwarded: int = 0
    pieces: list[_DraftRange] = field(default_factory=list)

    def add(self, piece: _DraftRange) -> None:
        self.pieces.append(piece)
        self.seqs_needed += piece.count
        self.forwarded += piece.count


class StepBuilder:
    """Builds the step of all routers of one source that stand at the same position."""

    def __init__(self, engine: Engine, source: Topic, window: SourceWindow) -> None:
        self._engine = engine
        self._source = source
        self._window = window
        self._now = engine.now()
        # No frame that copies of this window can be made from lies below it.
        self._position = engine.journal.position
        if window.in_journal:
            self._position = min(self._position, window.position)
        self._all = np.arange(len(window.rows), dtype=np.int64)
        self._known_sizes: I64 | None = None
        # Of what the journal will not have: which rows were copied by whom.
        self._copied: list[I64] = []
        # Destinations that want the same records in the same shape plan one batch and only render it anew.
        self._shared: dict[tuple[bool, bool], Copies] = {}
        self._plain: _Draft | None = None
        # Destinations that are always fed together get the same rows: the last ones that were encoded.
        self._rows: Rows | None = None
        self._rows_of: Copies | None = None
        self._passable = self._all
        if window.rows.hops is not None:
            self._passable = np.flatnonzero(window.rows.hops < MAX_HOPS)

    def submit(self, routers: list[Router]) -> bool:
        """False when no router could move."""
        at_once, synced = RouteOp(self._engine, sync=False), RouteOp(self._engine, sync=True)
        try:
            self._stage_all(routers, at_once, synced)
        except (MemoryError, InvariantViolated) as error:
            # Destinations have given out seqs that no frame will speak of.
            at_once.others = tuple(router.dest for router in routers)
            self._engine.queue.give_up(error, at_once, synced)
            return False
        for op in (at_once, synced):
            if op.all_pending:
                self._commit(op)
        return bool(at_once.all_pending or synced.all_pending)

    def _stage_all(self, routers: list[Router], at_once: RouteOp, synced: RouteOp) -> None:
        for router in routers:
            draft = self._draft(router)
            router.is_blocked = draft.cursor < self._window.last
            if draft.cursor == router.sent:
                continue
            dest = router.dest
            waits = (
                dest.config.durability == "fsync"
                or dest.pending_sync > 0
                or dest.assigned + draft.seqs_needed > dest.reserved
            )
            self._stage(router, draft, synced if waits else at_once)

    # --- deciding ---------------------------------------------------------------------------------------

    def _draft(self, router: Router) -> _Draft:
        window, dest, options = self._window, router.dest, router.options
        expire(dest, self._now)
        bounded = bool(window.lost) or is_bounded(self._engine, dest)
        if not bounded and router.match is None and not options.exactly_once:
            # Most of them: the same for all.
            if self._plain is None:
                self._plain = self._everything(self._passable)
            return self._plain
        picked = self._passable
        if router.match is not None:
            picked = self._matching(router, picked)
        suppressed: list[int] = []
        if options.exactly_once:
            picked, suppressed = self._without_known(router, picked)
        draft = self._fit(router, picked, self._capacity(router)) if bounded else self._everything(picked)
        draft.forwarded += sum(seq <= draft.cursor for seq in suppressed)
        return draft

    def _everything(self, picked: I64) -> _Draft:
        draft = _Draft(self._window.last)
        if len(picked):
            draft.add(self._copies(picked))
        return draft

    def _copies(self, picked: I64) -> _DraftRange:
        seqs, count = self._window.rows.seqs, len(picked)
        first, last = int(seqs[picked[0]]), int(seqs[picked[-1]])
        is_dense = last - first + 1 == count
        offsets = b"" if is_dense else (seqs[picked] - first).astype(np.uint32).tobytes()
        return _DraftRange(picked, first, count, offsets)

    def _matching(self, router: Router, picked: I64) -> I64:
        tags = self._window.rows.tags
        match = router.match
        assert match is not None
        if tags is None:
            return picked[:0]
        return np.array([i for i in picked.tolist() if match.matches(tags[i])], np.int64)

    def _without_known(self, router: Router, picked: I64) -> tuple[I64, list[int]]:
        find_foreign_keys(router.dest, router)
        if not router.keys_seen:
            return picked, []
        seqs = self._window.rows.seqs[picked]
        is_known = np.isin(seqs, list(known_copies(router, seqs.tolist())))
        return picked[~is_known], seqs[is_known].tolist()

    def _fit(self, router: Router, picked: I64, capacity: Capacity) -> _Draft:
        """In source order: copies as far as there is room, and holes where they belong among them."""
        draft = _Draft(self._window.last)
        seqs = self._window.rows.seqs[picked]
        at = 0
        for first, last, hops in [*self._window.lost, (self._window.last + 1, self._window.last, 0)]:
            until = int(np.searchsorted(seqs, first))
            fitting = capacity.take(self._copy_sizes(router, picked[at:until]))
            if fitting:
                draft.add(self._copies(picked[at : at + fitting]))
            if at + fitting < until:
                draft.cursor = int(seqs[at + fitting]) - 1
                router.wants_bytes = int(self._copy_sizes(router, picked[at + fitting : at + fitting + 1])[0])
                return draft
            at = until
            if first <= last:
                if capacity.is_full(router.wants_bytes):
                    draft.cursor = first - 1
                    return draft
                draft.add(_DraftRange(None, first, last - first + 1, bytes([hops + 1]) if hops else b""))
        router.wants_bytes = 1
        return draft

    @property
    def _sizes(self) -> I64:
        if self._known_sizes is None:
            rows = self._window.rows
            self._known_sizes = sizes_of(rows.data, rows.metas)
        return self._known_sizes

    def _copy_sizes(self, router: Router, picked: I64) -> I64:
        if not router.options.exactly_once or not len(picked):
            return self._sizes[picked]
        return self._copies_for(router, picked).sizes

    def _capacity(self, router: Router) -> Capacity:
        engine = self._engine
        limit = engine.settings.max_total_bytes
        if limit and engine.totals.bytes + engine.totals.pending_bytes + int(self._sizes.sum()) > limit:
            engine.expire_all(self._now)
        return capacity_of(engine, router.dest)

    # --- staging ----------------------------------------------------------------------------------------

    def _copies_for(self, router: Router, picked: I64) -> Copies:
        options, rows = router.options, self._window.rows
        stamp = self._stamp(router)
        shape = (options.preserve_node, options.preserve_tag)
        whole = len(picked) == len(rows)
        if whole and stamp is None and shape in self._shared:
            return self._shared[shape]
        made = copies_of(
            rows if whole else rows.take(picked),
            with_node=options.preserve_node,
            with_tag=options.preserve_tag,
            stamp=stamp,
        )
        if whole and stamp is None:
            self._shared[shape] = made
        return made

    def _stamp(self, router: Router) -> Stamp | None:
        if not router.options.exactly_once:
            return None
        return Stamp(router.name, self._source.name, self._source.id)

    def _stage(self, router: Router, draft: _Draft, op: RouteOp) -> None:
        engine, dest, options = self._engine, router.dest, router.options
        ts = max(self._now, dest.last_ts)
        plan = CopyPlan(
            router.id,
            draft.cursor,
            draft.forwarded,
            dest.id,
            ts,
            dest.config.durability != "ephemeral",
            options.preserve_node,
            options.preserve_tag,
            self._stamp(router),
            [],
        )
        pending = PendingCopies(router, dest, plan, self._now, [], sent_before=router.sent)
        last_seq = dest.assigned + draft.seqs_needed
        if last_seq > dest.reserved:
            pending.reserve_to = cover(engine, dest, last_seq, op)
        for piece in draft.pieces:
            self._stage_piece(router, pending, piece)
        op.all_pending.append(pending)
        router.sent = draft.cursor
        router.keys_scanned = dest.assigned
        engine.touched.add(dest)

    def _stage_piece(self, router: Router, pending: PendingCopies, draft: _DraftRange) -> None:
        dest, plan, kind = pending.dest, pending.plan, COPIES
        if draft.picked is None:
            # Said in the frame: by the time it is replayed, other records may lie below it or none at all.
            kind = HOLE_INSIDE if dest.live_count + dest.pending_count else HOLE_IN_FRONT
        first = dest.assigned + 1
        plan.pieces.append(CopyRange(kind, draft.first_source, draft.count, first, draft.offsets))
        if draft.picked is None:
            pending.sizes.append(0)
            dest.skip_to(dest.assigned + draft.count)
            return
        copies = self._copies_for(router, draft.picked)
        pending.sizes.append(copies.write.size)
        if plan.kept and not self._window.in_journal:
            self._copied.append(draft.picked)
        dest.append(self._encoded(copies, first, plan.ts), self._position, is_kept=plan.kept)

    def _encoded(self, copies: Copies, first_seq: int, ts: int) -> Rows:
        rows = self._rows
        if rows is None or copies is not self._rows_of or (rows.first_seq, rows.ts) != (first_seq, ts):
            rows = self._rows = codec.encode([copies.write], first_seq, ts, copies.hops)
            self._rows_of = copies
        return rows

    # --- committing -------------------------------------------------------------------------------------

    def _commit(self, op: RouteOp) -> None:
        engine, window = self._engine, self._window
        plans = [pending.plan for pending in op.all_pending]
        step = Step(self._source.id, plans)
        if self._copied:
            step.carried = carry(window.rows.take(np.unique(np.concatenate(self._copied))))
        header = {"ts": self._now}
        pieces = plans[0].pieces
        if len(plans) == 1 and pieces:
            # Should the payload rot, the header still tells which seqs went with it.
            count = pieces[-1].last_dest - pieces[0].first_dest + 1
            header |= {"topic_id": plans[0].dest, "first_seq": pieces[0].first_dest, "count": count}
        op.frames.append(FrameDraft(int(Kind.ROUTE), encode(step), **header))
        op.others = tuple(pending.dest for pending in op.all_pending)
        engine.queue.submit(op)
        for dest in op.others:
            if len(engine.queue.waiting) < MAX_RESERVATIONS:
                extend_if_short(engine, dest)
