"""Exactly once: finding our own keys among records that a client put into the destination.

What the router itself appended needs no looking at: those copies and its cursor move by one commit. So only
what lies between is searched, and only a key of a record not yet forwarded is of interest.
"""

import re
from bisect import bisect_right

import msgspec

from topics.flow.routers.copies import STAMP_KEY
from topics.flow.routers.definitions import Router
from topics.log import Run, Topic

_row = msgspec.json.Decoder()


def find_foreign_keys(router: Router) -> None:
    """Look through everything in the destination that was not looked at before."""
    dest = router.dest
    start = max(router.keys_scanned + 1, dest.floor)
    pattern: re.Pattern[bytes] | None = None
    for run, first, _ in dest.stretches(start, dest.assigned + 1):
        if run.live_count:
            pattern = pattern or _pattern(router)
            _search(router, run, first, pattern)
    router.keys_scanned = dest.assigned


def _pattern(router: Router) -> re.Pattern[bytes]:
    source = router.source
    prefix = f'"idempotency_key":"router:{router.name}:{source.id}:{source.id}:'
    return re.compile(re.escape(prefix.encode()) + rb'(\d{1,19})"')


def _search(router: Router, run: Run, start: int, pattern: re.Pattern[bytes]) -> None:
    columns = router.dest.store.columns(run)
    begin = columns.start_of(start)
    block = bytes(memoryview(columns.rows)[begin:])
    ends = columns.ends.tolist()
    for found in pattern.finditer(block):
        seq = int(found[1])
        if seq > router.sent:
            index = bisect_right(ends, begin + found.start())
            row = _row.decode(block[(ends[index - 1] if index else 0) - begin : ends[index] - begin])
            if _key_of(row) == found[0].decode()[len('"idempotency_key":"') : -1]:
                router.keys_seen[seq] = run.base + index


def _key_of(row: object) -> object:
    """The key in the row's meta; data may contain the same words and means nothing."""
    meta = row.get("meta") if isinstance(row, dict) else None
    mark = meta.get(STAMP_KEY) if isinstance(meta, dict) else None
    return mark.get("idempotency_key") if isinstance(mark, dict) else None


def take_live_keys(router: Router, last: int) -> set[int]:
    """Source seqs up to `last` whose copy is already there; older findings are of no use any more."""
    found = {seq for seq, at in router.keys_seen.items() if seq <= last and _is_live(router.dest, at)}
    router.keys_seen = {seq: at for seq, at in router.keys_seen.items() if seq > router.sent}
    return found


def _is_live(topic: Topic, seq: int) -> bool:
    if seq > topic.head:
        return True  # on its way to disk
    return topic.floor <= seq and topic.first_live(seq) == seq
