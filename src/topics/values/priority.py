"""Effective priority: the manual value, or one that fades with the time since the topic was last read."""

from topics.values.config import PRIORITY_LIMIT, TopicConfig

FRESH = 500
HALF_LIFE_MS = 30_000
FORGOTTEN_MS = 300_000


def effective_priority(config: TopicConfig, last_read_ts: int | None, now_ms: int) -> int:
    if config.priority is not None:
        return min(max(config.priority, -PRIORITY_LIMIT), PRIORITY_LIMIT)
    if not config.auto_priority or last_read_ts is None:
        return 0
    idle_ms = max(now_ms - last_read_ts, 0)
    if idle_ms >= FORGOTTEN_MS:
        return 0
    # Halves go up; Python's own rounding would take them to the even neighbour.
    return int(FRESH * 2 ** (-idle_ms / HALF_LIFE_MS) + 0.5)
