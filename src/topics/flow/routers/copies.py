"""Copies: made from stored source records, staged in a destination, and visible when their step is committed.

A live step and recovery run this code alike: equal columns give equal bytes.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from topics import codec
from topics.codec import Write
from topics.core import MAX_META_KEYS, NODE_AT, TAG_AT, ApiError, names_of
from topics.flow.routers.definitions import COPIES, GONE, HOLE_INSIDE, CarriedRows, CopyPlan, Router, Stamp
from topics.log import Engine, Op, Run, Topic, enforce_caps, expire, surviving_damage
from topics.log.remove import ledger
from topics.storage import END, I64, Records

STAMP_KEY = "_topics_router"
ORIGINAL_KEY = "_topics_original_meta"
_STAMP_KEY_BYTES = STAMP_KEY.encode()
# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
_META_COUNT_BYTES = MAX_META_KEYS * 5
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


def carry(rows: Records) -> CarriedRows:
    hops = None if rows.hops is None else rows.hops.tobytes()
    return CarriedRows(rows.seqs.tobytes(), rows.data, rows.metas, rows.names, hops)


def carried_rows(carried: CarriedRows) -> Records:
    return Records(
        np.frombuffer(carried.seqs, np.int64),
        carried.data,
        carried.metas,
        carried.names,
        None if carried.hops is None else np.frombuffer(carried.hops, np.uint8),
    )


@dataclass(slots=True, frozen=True)
class Copies:
    """Records to append to a destination, and the number of routers that each of them has passed."""

    write: Write
    hops: bytes
    # Bytes of data and meta of each record.
    sizes: I64


def copies_of(rows: Records, *, with_node: bool, with_tag: bool, stamp: Stamp | None) -> Copies:
    """The records that a router appends for these records of its source."""
    metas = rows.metas
    if stamp is not None:
        old: list[bytes | None] = [None] * len(rows) if metas is None else metas
        metas = [stamped(meta, stamp, seq) for meta, seq in zip(old, rows.seqs.tolist(), strict=True)]
    left_out = {NODE_AT} if not with_node else set()
    left_out |= {TAG_AT} if not with_tag else set()
    names = names_of([None if at in left_out else column for at, column in enumerate(rows.names)])
    write = codec.from_values(rows.data, metas, names)
    hops = bytes([1]) * len(rows) if rows.hops is None else (rows.hops + np.uint8(1)).tobytes()
    return Copies(write, hops, sizes_of(rows.data, metas))


def sizes_of(data: list[bytes], metas: list[bytes | None] | None) -> I64:
    """Bytes of data and meta of each record."""
    sizes = np.array([len(value) for value in data], np.int64)
    if metas is not None:
        sizes += np.array([0 if meta is None else len(meta) for meta in metas], np.int64)
    return sizes


def stamp_key(stamp: Stamp, seq: int) -> str:
    # The id of a topic instance is its epoch as well.
    return f"router:{stamp.router}:{stamp.source_id}:{stamp.source_id}:{seq}"


def stamped(meta: bytes | None, stamp: Stamp, seq: int) -> bytes:
    """The meta with the router's mark in it; what was there before keeps its bytes where possible."""
    mark = _encode(
        {
            "idempotency_key": stamp_key(stamp, seq),
            "router": stamp.router,
            "source_topic": stamp.source_name,
            "source_topic_id": stamp.source_id,
            "source_epoch": stamp.source_id,
            "source_seq": seq,
        }
    )
    added = b'"%b":%b}' % (_STAMP_KEY_BYTES, mark)
    if meta is None or meta == b"{}":
        return b"{" + added
    # Escapes may hide a mark of an earlier router.
    if len(meta) <= _META_COUNT_BYTES and _STAMP_KEY_BYTES not in meta and b"\\" not in meta:
        return meta[:-1] + b"," + added
    fields = _fields.decode(meta)
    if len(fields) >= MAX_META_KEYS:
        return _encode({STAMP_KEY: msgspec.Raw(mark), ORIGINAL_KEY: msgspec.Raw(meta)})
    if STAMP_KEY not in fields:
        return meta[:-1] + b"," + added
    return _encode(fields | {STAMP_KEY: msgspec.Raw(mark)})


# Keys that clients have written for records still to come; a power of two. Those furthest ahead go first.
MAX_KEYS = 1 << 17
# Below this, findings of no more use are not worth looking for.
_FEW_KEYS = 1 << 10
# A client may spell any letter of a key so.
_ESCAPE = b"\\u"


class _Meta(msgspec.Struct, gc=False):
    mark: Any = msgspec.field(name=STAMP_KEY, default=None)


_meta = msgspec.json.Decoder(_Meta)


@surviving_damage
def find_foreign_keys(dest: Topic, router: Router) -> None:
    """Find keys of an exactly-once router in records that clients wrote into its destination.

    Each record is searched once, and only keys of records that are not forwarded yet are kept.
    """
    start = max(router.keys_scanned + 1, dest.floor)
    for run, first, _ in dest.runs.stretches(start, dest.assigned + 1):
        if run.live_count:
            _search(router, run, first)
    router.keys_scanned = dest.assigned


def _search(router: Router, run: Run, start: int) -> None:
    columns = router.dest.store.columns(run)
    if columns.meta_lens is None:
        return
    begin = columns.start_of(start)
    block = bytes(memoryview(columns.rows)[begin:])
    ends, lengths = columns.ends.tolist(), columns.meta_lens.tolist()
    key = stamp_key(Stamp(router.name, router.source.name, router.source.id), 0)[:-1]
    for text in (key.encode(), _ESCAPE):
        at = block.find(text)
        while at >= 0:
            # A row is looked at once, and its data not at all: the words may occur in it a thousand times.
            index = bisect_right(ends, begin + at)
            end = ends[index] - begin - len(END)
            meta_at = end - lengths[index]
            if at >= meta_at:
                _note_key(router, block[meta_at:end], key, run.base + index)
            at = block.find(text, end if at >= meta_at else meta_at)


def _note_key(router: Router, meta: bytes, key: str, at: int) -> None:
    mark = _meta.decode(meta).mark
    found = mark.get("idempotency_key") if isinstance(mark, dict) else None
    number = found[len(key) :] if isinstance(found, str) and found.startswith(key) else ""
    if number.isascii() and number.isdigit() and len(number) < 20 and int(number) > router.sent:
        router.keys_seen[int(number)] = at
        count = len(router.keys_seen)
        # Each time it has doubled, so that a key costs the same however many there are.
        if count >= _FEW_KEYS and count & (count - 1) == 0:
            _forget_useless(router)


def _forget_useless(router: Router) -> None:
    """Keys of records that were forwarded or passed over, and more if there are still too many."""
    useful = {seq: at for seq, at in router.keys_seen.items() if seq > router.sent}
    if len(useful) >= MAX_KEYS:
        useful = {seq: at for seq, at in useful.items() if _is_live(router.dest, at)}
    if len(useful) >= MAX_KEYS:
        useful = {seq: useful[seq] for seq in sorted(useful)[: MAX_KEYS // 2]}
    router.keys_seen = useful


def known_copies(router: Router, seqs: list[int]) -> set[int]:
    """Those of the source's seqs whose copy is already there."""
    seen = router.keys_seen
    return {seq for seq in seqs if seq in seen and _is_live(router.dest, seen[seq])}


def _is_live(topic: Topic, seq: int) -> bool:
    if seq > topic.head:
        return True  # on its way to disk
    return topic.floor <= seq and topic.first_live(seq) == seq


@dataclass(slots=True)
class PendingCopies:
    """The staged copies of one router, and what happens in the destination at the commit."""

    router: Router | None
    dest: Topic
    plan: CopyPlan
    # When the step was made. The copies may have a later time: times never fall in a topic.
    clock_ms: int
    # Bytes of the copies in each piece.
    sizes: list[int]
    reserve_to: int = 0
    # The position of the router before the step.
    sent_before: int = 0

    def apply(self, engine: Engine) -> None:
        """Make staged copies visible, open holes, and apply retention."""
        dest, plan = self.dest, self.plan
        if self.router is not None:
            self.router.cursor = plan.cursor
            self.router.forwarded += plan.forwarded
        if not plan.pieces:
            return
        if self.reserve_to:
            dest.reserve(self.reserve_to)
        expire(dest, self.clock_ms)
        for piece, size in zip(plan.pieces, self.sizes, strict=True):
            if piece.kind == COPIES:
                dest.publish(piece.count, size, plan.ts)
            elif piece.kind == GONE:
                dest.add_hole(piece.first_dest, piece.last_dest, ledger.LOST, found_ms=plan.ts)
            else:
                inside = piece.kind == HOLE_INSIDE
                first, last = piece.first_dest, piece.last_dest
                dest.add_hole(first, last, ledger.TRIM, interior=inside, hops=piece.hops, found_ms=plan.ts)
        cap_hi = dest.cap_hi
        enforce_caps(dest)
        if dest.mixed and dest.cap_hi != cap_hi and engine.recovered:
            engine.note_lines(dest)

    def withdraw(self) -> None:
        """Take the copies back: the step was refused, and the router has to make it again."""
        dest, pieces = self.dest, self.plan.pieces
        if pieces:
            copies = sum(piece.count for piece in pieces if piece.kind == COPIES)
            dest.take_back(pieces[0].first_dest - 1, copies, sum(self.sizes))
            dest.withdraw_reservation()
        if self.router is not None:
            self.router.step_back(self.sent_before, dest.assigned)


class RouteOp(Op):
    """A step that is being committed."""

    __slots__ = ("_engine", "all_pending")

    grows = True

    def __init__(self, engine: Engine, *, sync: bool) -> None:
        super().__init__([], None, sync=sync)
        self._engine = engine
        self.all_pending: list[PendingCopies] = []

    def apply(self) -> None:
        for pending in self.all_pending:
            pending.apply(self._engine)
        for pending in self.all_pending:
            if pending.dest.listeners and pending.plan.pieces:
                pending.dest.wake()

    def fail(self, error: ApiError) -> None:
        return None  # no client waits for it; the records are forwarded again later, or after a restart

    def withdraw(self) -> None:
        for pending in reversed(self.all_pending):
            pending.withdraw()
