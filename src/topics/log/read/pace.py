"""How fast a topic is written, when a record was, and when it will be lost: from what is known of runs.

No file is read for it. Inside a run that is not in memory, time is taken to have passed evenly.
"""

from bisect import bisect_left
from math import inf

from topics.log.run import Run
from topics.log.topic import Topic

# The rate is that of the last minute, or, if nothing came, of the last ten.
_WINDOWS_MS = (60_000, 600_000)


def records_per_second(topic: Topic, now_ms: int) -> float:
    for window in _WINDOWS_MS:
        written = topic.head - _first_since(topic, now_ms - window) + 1
        if written > 0:
            return written * 1000 / window
    return 0.0


def written_ms(topic: Topic, seq: int) -> int:
    """When the record with this seq was written, or the next one that is there."""
    for run, start, _ in topic.runs.stretches(seq, topic.head + 1):
        return _ts_at(run, start)
    return topic.last_ts


def time_left(topic: Topic, seq: int, now_ms: int) -> tuple[float, str | None]:
    """Seconds until a cap or age takes a record that a reader still wants, at the present rate, and which.

    Infinite while more is left than the reader is behind already: it keeps up.
    """
    config, left, by = topic.config, inf, None
    seq = max(seq, topic.floor)
    if config.ttl_ms:
        waited_s = (now_ms - written_ms(topic, seq)) / 1000
        until = config.ttl_ms / 1000 - waited_s
        if until < waited_s:
            left, by = max(until, 0.0), "ttl"
    if config.discard == "old" and (config.cap_records or config.cap_bytes):
        room = _records_until_evicted(topic, seq)
        rate = records_per_second(topic, now_ms)
        if rate and room < topic.head - seq + 1 and room / rate < left:
            left, by = max(room, 0.0) / rate, "cap"
    return left, by


def _records_until_evicted(topic: Topic, seq: int) -> float:
    """How many more have to be written until caps reach this one. Deletions before it are passed over."""
    config, before = topic.config, min(seq - topic.floor, topic.live_count)
    room = inf
    if config.cap_records:
        room = config.cap_records - topic.live_count + before
    if config.cap_bytes and topic.live_bytes:
        each = topic.live_bytes / topic.live_count
        room = min(room, (config.cap_bytes - topic.live_bytes) / each + before)
    return room


def _ts_at(run: Run, index: int) -> int:
    if run.hot is not None:
        return run.hot.ts_at(index)
    return run.first_ts + (run.last_ts - run.first_ts) * index // max(run.count - 1, 1)


def _first_since(topic: Topic, ms: int) -> int:
    """The first seq that was written then or later, or head + 1."""
    found = topic.head + 1
    for run in reversed(topic.runs):
        if not run.count or run.last_ts < ms:
            break
        if run.first_ts >= ms:
            found = run.base
            continue
        if run.hot is not None:
            at = bisect_left(run.hot.ts_values, ms)
            return run.base + run.hot.ts_starts[at]
        passed = (ms - run.first_ts) * run.count // (run.last_ts - run.first_ts + 1)
        return run.base + passed
    return min(found, topic.head + 1)
