"""Taking a topic back to an earlier head, and giving topics new ids: for restoring, never on a live server.

What a topic loses here is forgotten as if it had never been written, which no consumer would notice by
itself. Therefore restored topics get other ids, which are their epochs: a consumer that remembers the old one
is told that this is another instance.
"""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from dataclasses import replace

import numpy as np

from topics.flow.cursors import Cursors
from topics.flow.routers.registry import Routers
from topics.log.engine import Engine
from topics.log.remove.ledger import Ledger
from topics.log.remove.removal import settle_floor, surviving_damage
from topics.log.run import HotColumns, Names, Run
from topics.log.topic import Topic
from topics.storage.columns import U32, Columns
from topics.storage.segment import SegmentDamaged, renumber


def head_at(topic: Topic, at_ms: int) -> int:
    """The last seq that had been given out by then, as far as the records that are left can tell."""
    if not topic.runs:
        return topic.head
    return surviving_damage(topic, lambda: _head_at(topic, at_ms))


def _head_at(topic: Topic, at_ms: int) -> int:
    if topic.runs and topic.runs[-1].last_ts <= at_ms:
        return topic.head
    for run in reversed(topic.runs):
        if run.last_ts <= at_ms:
            return run.last
        if run.first_ts <= at_ms and run.live_count:
            return run.base + int(np.searchsorted(topic.store.columns(run).ts, at_ms, side="right")) - 1
    return topic.runs[0].base - 1


def truncate(engine: Engine, routers: Routers, topic: Topic, head: int) -> None:
    """Forget everything above `head`: a lease or a router must not refer to what is written there next."""
    if head < topic.head:
        _take_back(engine, topic, head)
    if topic.config.is_queue:
        table = topic.extension.table
        table.forget({seq for seq in table.known() if seq > head})
    for router in routers.table.from_source(topic):
        router.cursor = router.sent = min(router.cursor, head)
    for router in routers.table.into(topic):
        router.keys_scanned = min(router.keys_scanned, head)


def _take_back(engine: Engine, topic: Topic, head: int) -> None:
    surviving_damage(topic, lambda: _cut_runs(engine, topic, head))
    topic.head = topic.assigned = head
    topic.reserved = topic.reserve_asked = head
    topic.cap_hi, topic.ttl_hi = min(topic.cap_hi, head), min(topic.ttl_hi, head)
    topic.trim_hi, topic.lost_hi = min(topic.trim_hi, head), min(topic.lost_hi, head)
    topic.delete_below = min(topic.delete_below, head + 1)
    topic.holes = [replace(hole, last=min(hole.last, head)) for hole in topic.holes if hole.first <= head]
    ledger = Ledger()
    for first, last, kind in topic.ledger.ranges():
        ledger.add(first, min(last, head), kind)
    topic.ledger = ledger
    count, size = sum(run.live_count for run in topic.runs), sum(run.live_bytes for run in topic.runs)
    topic.add_live(count - topic.live_count, size - topic.live_bytes)
    topic.floor = min(topic.floor, head + 1)
    settle_floor(topic, topic.floor)
    engine.store.changed.add(topic.id)


def _cut_runs(engine: Engine, topic: Topic, head: int) -> None:
    for run in [run for run in topic.runs if run.last > head]:
        beginning = None
        if run.base <= head and run.live_count:
            beginning = _beginning(engine, topic, run, head - run.base + 1)
        index = topic.runs.index(run)
        del topic.runs[index], topic.bases[index]
        topic.store.release(run)
        if beginning is not None and beginning.live_count:
            topic.insert_run(beginning)
            topic.store.unsealed.grew(beginning, beginning.hot.size if beginning.hot else 0)


def _beginning(engine: Engine, topic: Topic, run: Run, count: int) -> Run:
    """The first records of a run as one of their own, in memory until it is sealed."""
    columns = topic.store.columns(run)
    short = Run(topic.id, run.base, start_position=engine.journal.position)
    short.hot = _in_memory(columns, count)
    short.count = count
    short.first_ts, short.last_ts = int(columns.ts[0]), int(columns.ts[count - 1])
    if run.dead is not None:
        short.dead = run.dead[:count]
        short.dead_count = short.dead.count(1)
    start = min(max(topic.floor - run.base, 0), count)
    short.live_count = short.live_between(start, count)
    short.live_bytes = int(short.live_sizes(columns, start, count).sum())
    return short


def _in_memory(columns: Columns, count: int) -> HotColumns:
    hot = HotColumns(columns.base)
    hot.rows = bytearray(memoryview(columns.rows)[: int(columns.ends[count - 1])])
    hot.size = hot.weight = len(hot.rows)
    hot.ends = _values(columns.ends, count)
    if columns.known_data_lens is not None:
        hot.data_lens = _values(columns.known_data_lens, count)
    ts = columns.ts[:count]
    changes = np.concatenate(([0], np.flatnonzero(np.diff(ts)) + 1))
    hot.ts_starts = array("I", changes.astype(np.uint32).tobytes())
    hot.ts_values = array("q", ts[changes].astype(np.int64).tobytes())
    if columns.meta_lens is not None:
        hot.meta_lens = _values(columns.meta_lens, count)
    if columns.node_codes is not None:
        hot.node_codes, hot.node_names = _values(columns.node_codes, count), _names(columns.nodes)
    if columns.tag_codes is not None:
        hot.tag_codes, hot.tag_names = _values(columns.tag_codes, count), _names(columns.tags)
    if columns.hops is not None:
        hot.hops = bytearray(columns.hops[:count].tobytes())
    return hot


def _values(column: U32, count: int) -> array[int]:
    return array("I", column[:count].tobytes())


def _names(known: list[str]) -> Names:
    names = Names()
    names.encode(known)
    return names


def begin_new_epochs(engine: Engine, routers: Routers, cursors: Cursors, offset: int) -> None:
    """Give every topic another id, in memory and in its segments. Not safe in a crash, nor meant to be.

    Named cursors stay, and still say for which epoch they were set.
    """
    store = engine.store
    store.close()
    for number in store.users:
        with suppress(SegmentDamaged, FileNotFoundError):  # its records are lost under any id
            renumber(store.fs, os.path.dirname(store.path(number)), number, offset)
    for topic in engine.by_id.values():
        topic.id += offset
        for run in topic.runs:
            run.topic_id = topic.id
    engine.by_id = {topic.id: topic for topic in engine.by_id.values()}
    engine.next_topic_id += offset
    store.changed = set(engine.by_id)
    cursors.renumber(offset)
    # Steps in the journal refer to the old ids, and the journal ends here.
    routers.referred = {}
