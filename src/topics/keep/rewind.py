"""Taking a topic back to an earlier head, and giving topics new ids: for restoring, never on a live server.

What a topic loses here is forgotten as if it had never been written, which no consumer would notice by
itself. Therefore restored topics get other ids, which are their epochs: a consumer that remembers the old one
is told that this is another instance.
"""

import os
from contextlib import suppress

import numpy as np

from topics.flow.cursors import Cursors
from topics.flow.routers.registry import Routers
from topics.log import Engine, Run, Topic, settle_floor, surviving_damage
from topics.storage import SegmentDamaged, renumber


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
    topic.rewind(head)
    topic.settle_totals()
    settle_floor(topic, topic.floor)


def _cut_runs(engine: Engine, topic: Topic, head: int) -> None:
    for run in [run for run in topic.runs if run.last > head]:
        beginning = None
        if run.base <= head and run.live_count:
            beginning = _beginning(engine, topic, run, head - run.base + 1)
        topic.remove_run(run)
        if beginning is not None and beginning.live_count:
            topic.insert_run(beginning)
            topic.store.unsealed.grew(beginning, beginning.hot.size if beginning.hot else 0)


def _beginning(engine: Engine, topic: Topic, run: Run, count: int) -> Run:
    """The first records of a run as one of their own, in memory until it is sealed."""
    columns = topic.store.columns(run)
    short = Run(topic.id, run.base, None, start_position=engine.journal.position, framed=False)
    short.fill(columns, count, run.dead, topic.floor)
    return short


def begin_new_epochs(engine: Engine, routers: Routers, cursors: Cursors, offset: int) -> None:
    """Give every topic another id, in memory and in its segments. Not safe in a crash, nor meant to be.

    Named cursors stay, and still say for which epoch they were set.
    """
    store = engine.store
    store.close()
    for number in store.users:
        with suppress(SegmentDamaged, FileNotFoundError):  # its records are lost under any id
            renumber(store.fs, os.path.dirname(store.path(number)), number, offset)
    store.changed.clear()
    for topic in engine.by_id.values():
        topic.renumber(topic.id + offset)
    engine.by_id = {topic.id: topic for topic in engine.by_id.values()}
    engine.next_topic_id += offset
    cursors.renumber(offset)
    # Steps in the journal refer to the old ids, and the journal ends here.
    routers.referred = {}
