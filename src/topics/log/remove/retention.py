"""Loss that no client asked for: caps evict, age expires. Only records that were live move the loss line."""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from topics.log.remove import ledger
from topics.log.remove.removal import remove_front, surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic
from topics.values import TopicConfig


def expire(topic: Topic, now_ms: int) -> None:
    """Drop records older than the TTL; a record aged exactly the TTL stays."""
    ttl_ms = topic.config.ttl_ms
    if not ttl_ms or not topic.live_count:
        return
    oldest_allowed = now_ms - ttl_ms
    if topic.floor_ts >= oldest_allowed:
        return
    topic.clock_mark.cover(now_ms)
    takes_ephemeral = topic.mixed or topic.runs[0].ephemeral
    upto = surviving_damage(topic, lambda: _last_older(topic, oldest_allowed))
    floor = topic.floor
    removed, last = remove_front(topic, upto, ledger.TTL)
    if removed:
        topic.raise_line(ledger.TTL, last, unnoted=takes_ephemeral)
        topic.note_gone(floor, topic.floor - 1, now_ms)


def _last_older(topic: Topic, oldest_allowed: int) -> int:
    """The last seq whose record is older than `oldest_allowed`; timestamps never fall."""
    upto = topic.floor - 1
    for run in topic.runs:
        if not run.live_count:
            continue
        if run.last_ts < oldest_allowed:
            upto = run.last
            continue
        if run.first_ts < oldest_allowed:
            ts = topic.store.columns(run).ts
            upto = run.base + int(np.searchsorted(ts, oldest_allowed)) - 1
        break
    return upto


def keep_lines(topic: Topic, cap_hi: int, ttl_hi: int) -> None:
    """Lines that had been shown: whatever is still found below them goes the way it had gone before."""
    for line, kind in sorted(((cap_hi, ledger.CAP), (ttl_hi, ledger.TTL))):
        if line >= topic.floor:
            remove_front(topic, line, kind)
    topic.raise_line(ledger.CAP, cap_hi)
    topic.raise_line(ledger.TTL, ttl_hi)


def would_remove(topic: Topic, config: TopicConfig, now_ms: int) -> int:
    """How many records this config would take away at once. Nothing is changed."""
    count = topic.live_count
    older = _last_older(topic, now_ms - config.ttl_ms) if config.ttl_ms else topic.floor - 1
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


def enforce_caps(topic: Topic) -> None:
    """Evict the oldest live records until both caps hold."""
    config = topic.config
    if config.cap_records and topic.live_count > config.cap_records:
        _evict(topic, lambda: _nth_live(topic, topic.live_count - config.cap_records))
    if config.cap_bytes and topic.live_bytes > config.cap_bytes:
        _evict(topic, lambda: _bytes_prefix(topic, topic.live_bytes - config.cap_bytes))


def _evict(topic: Topic, find: Callable[[], int]) -> None:
    upto = surviving_damage(topic, find)
    floor = topic.floor
    removed, last = remove_front(topic, upto, ledger.CAP)
    if removed:
        topic.raise_line(ledger.CAP, last)
        # With the write that left no room for them.
        topic.note_gone(floor, topic.floor - 1, topic.last_ts)


def _nth_live(topic: Topic, n: int) -> int:
    """Seq of the n-th live record from the front."""
    if n <= 0:
        return topic.floor - 1  # a run that turned out to be damaged took care of it
    for run in topic.runs:
        if run.live_count <= n:
            n -= run.live_count
            if not n:
                return run.last
            continue
        start = max(topic.floor - run.base, 0)
        topic.load_marks(run)
        if run.dead is None:
            return run.base + start + n - 1
        alive = np.flatnonzero(np.frombuffer(run.dead, np.uint8)[start:] == 0)
        return run.base + start + int(alive[n - 1])
    return topic.head


def _bytes_prefix(topic: Topic, excess: int) -> int:
    """Seq up to which live records must go for at least `excess` bytes to be freed."""
    if excess <= 0:
        return topic.floor - 1  # a run that turned out to be damaged took care of it
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
