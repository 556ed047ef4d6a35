"""Exactly once: finding our own keys among records that a client put into the destination.

What the router itself appended needs no looking at: those copies and its cursor move by one commit. So only
what lies between is searched, and only a key of a record not yet forwarded is of interest.
"""

from bisect import bisect_right
from typing import Any

import msgspec

from topics.flow.routers.copies import STAMP_KEY, stamp_key
from topics.flow.routers.definitions import Router
from topics.flow.routers.frames import Stamp
from topics.log import Run, Topic
from topics.storage import END

# Keys that clients have written for records still to come; a power of two. Those furthest ahead go first.
MAX_KEYS = 1 << 17
# Below this, findings of no more use are not worth looking for.
_FEW_KEYS = 1 << 10
# A client may spell any letter of a key so.
_ESCAPE = b"\\u"


class _Meta(msgspec.Struct, gc=False):
    mark: Any = msgspec.field(name=STAMP_KEY, default=None)


_meta = msgspec.json.Decoder(_Meta)


def find_foreign_keys(router: Router) -> None:
    """Look through everything in the destination that was not looked at before."""
    dest = router.dest
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
