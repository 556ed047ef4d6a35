"""Loss that no client asked for: caps evict, age expires. Only records that were live move the loss line."""

from bisect import bisect_left

import numpy as np

from topics.log.remove import ledger
from topics.log.remove.removal import remove_front, surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic
from topics.values import TopicConfig


def expire(topic: Topic, now_ms: int, *, at_once: bool = False) -> None:
    """Drop records older than the TTL; a record aged exactly the TTL stays.

    `at_once`: the TTL is new, and takes them now, however long they have been older than it.
    """
    ttl_ms = topic.config.ttl_ms
    if not ttl_ms or not topic.live_count:
        return
    oldest_allowed = now_ms - ttl_ms
    if topic.floor_ts >= oldest_allowed:
        return
    topic.clock_mark.cover(now_ms)
    takes_ephemeral = topic.mixed or topic.runs[0].ephemeral
    upto, last_ts = surviving_damage(topic, _last_older, topic, oldest_allowed)
    floor, floor_ts = topic.floor, topic.floor_ts
    removed, last = remove_front(topic, upto, ledger.TTL)
    if removed:
        topic.raise_line(ledger.TTL, last, unnoted=takes_ephemeral)
        # No reader has had them from their own moment on, whenever it is that somebody looks.
        went = (now_ms, now_ms) if at_once else (floor_ts + ttl_ms + 1, last_ts + ttl_ms + 1)
        topic.note_gone(floor, last, *went)
        topic.check_marks()


def _last_older(topic: Topic, oldest_allowed: int) -> tuple[int, int]:
    """The last seq whose record is older than `oldest_allowed`, and its time; timestamps never fall."""
    upto, last_ts = topic.floor - 1, 0
    for run in topic.runs:
        if not run.live_count:
            continue
        if run.last_ts < oldest_allowed:
            upto, last_ts = run.last, run.last_ts
            continue
        if run.first_ts < oldest_allowed:
            ts = topic.store.columns(run).ts
            index = int(np.searchsorted(ts, oldest_allowed)) - 1
            upto, last_ts = run.base + index, int(ts[index])
        break
    return upto, last_ts


def keep_lines(topic: Topic, cap_hi: int, ttl_hi: int, by_ms: int) -> None:
    """Lines that had been shown by then: what is still found below them goes the way it had gone before."""
    floor = topic.floor
    for line, kind in sorted(((cap_hi, ledger.CAP), (ttl_hi, ledger.TTL))):
        if line >= topic.floor:
            remove_front(topic, line, kind)
    topic.note_gone(floor, topic.floor - 1, 0, by_ms)
    topic.raise_line(ledger.CAP, cap_hi)
    topic.raise_line(ledger.TTL, ttl_hi)


def would_remove(topic: Topic, config: TopicConfig, now_ms: int) -> int:
    """How many records this config would take away at once. Nothing is changed."""
    count = topic.live_count
    older = _last_older(topic, now_ms - config.ttl_ms)[0] if config.ttl_ms else topic.floor - 1
    if config.cap_bytes:
        older = max(older, _bytes_prefix(topic, topic.live_bytes - config.cap_bytes))
    return max(_live_upto(topic, older), count - config.cap_records if config.cap_records else 0)


def _live_upto(topic: Topic, seq: int) -> int:
    found = 0
    for run, start, stop in topic.stretches(topic.floor, seq + 1):
        if run.live_count:
            topic.load_marks(run)
            found += run.live_between(start, stop)
    return found


def enforce_caps(topic: Topic, now_ms: int | None = None) -> None:
    """Evict the oldest live records until both caps hold.

    `now_ms`: the time, if it was not the last write that left no room for them.
    """
    config = topic.config
    if config.cap_records and topic.live_count > config.cap_records:
        _evict(topic, now_ms, surviving_damage(topic, _last_above_records, topic))
    if config.cap_bytes and topic.live_bytes > config.cap_bytes:
        _evict(topic, now_ms, surviving_damage(topic, _last_above_bytes, topic))


def _evict(topic: Topic, now_ms: int | None, upto: int) -> None:
    floor = topic.floor
    removed, last = remove_front(topic, upto, ledger.CAP)
    if removed:
        topic.raise_line(ledger.CAP, last)
        went_ms = topic.last_ts if now_ms is None else now_ms
        topic.note_gone(floor, last, went_ms, went_ms)
        topic.check_marks()


def _last_above_records(topic: Topic) -> int:
    """Return the seq of the last record that `cap_records` leaves no room for."""
    n = topic.live_count - topic.config.cap_records
    if n <= 0:
        return topic.floor - 1  # a damaged run has gone, and its records with it
    for run in topic.runs:
        if run.live_count <= n:
            n -= run.live_count
            if not n:
                return run.last
            continue
        start = max(topic.floor - run.base, 0)
        if run.dead_count:
            topic.load_marks(run)
        if run.dead is None:
            return run.base + start + n - 1
        alive = np.flatnonzero(np.frombuffer(run.dead, np.uint8)[start:] == 0)
        return run.base + start + int(alive[n - 1])
    return topic.head


def _last_above_bytes(topic: Topic) -> int:
    """Return the seq up to which live records go so that the rest fits into `cap_bytes`."""
    return _bytes_prefix(topic, topic.live_bytes - topic.config.cap_bytes)


def _bytes_prefix(topic: Topic, excess: int) -> int:
    """Return the seq up to which live records must go for at least `excess` bytes to be freed."""
    if excess <= 0:
        return topic.floor - 1  # a damaged run has gone, and its records with it
    for run in topic.runs:
        if run.live_bytes < excess:
            excess -= run.live_bytes
            continue
        return run.base + _index_freeing(topic, run, excess)
    return topic.head


def _index_freeing(topic: Topic, run: Run, excess: int) -> int:
    start = max(topic.floor - run.base, 0)
    hot = run.hot
    if hot is not None and run.dead is None:
        # One record or a few, as a rule: look near before looking far.
        count = 1
        while start + count < run.count and hot.size_between(start, start + count) < excess:
            count *= 8
        near = range(start, min(start + count, run.count))
        return start + bisect_left(near, excess, key=lambda index: hot.size_between(start, index + 1))
    columns = topic.store.columns(run)
    freed = np.cumsum(run.live_sizes(columns, start, run.count))
    return start + int(np.searchsorted(freed, excess))
