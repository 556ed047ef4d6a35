"""Topics, cursors, routers and pipelines that need the attention of an operator."""

import asyncio
from collections.abc import Iterator
from itertools import chain
from math import inf
from time import monotonic
from typing import Any

from topics.engine.node import Node
from topics.flow.cursors import Cursors, StoredCursor
from topics.http.admission.auth import ApiKey
from topics.log import LOST, Topic, time_left, written_ms

Item = dict[str, Any]

# The most pressing first.
KINDS = ("told", "overtaken", "damage", "failed", "blocked", "stalled", "dead_letters")
# Items listed of one kind; the others are only counted.
MOST_OF_A_KIND = 20
_SLICE = 2_000
# A pass that took a second is good for twenty: whoever asks all the time takes a twentieth of the loop's.
_REST = 20
# A cursor is about to lose when less than this is left, and less than it has already waited.
SOON_S = 3600.0
# A cursor with records before it that has not moved for so long has stopped: a consumer that failed, perhaps.
STALLED_MS = 600_000


class Attention:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._found: dict[str, list[Item]] = {}
        self._good_until = -inf
        self._looking: asyncio.Lock | None = None

    async def items(self, key: ApiKey | None) -> dict[str, Any]:
        """For this key: those of its names, the most pressing kinds first, and how many there are of each."""
        await self._look()
        shown: list[Item] = []
        counts: dict[str, int] = {}
        # Reports of pipelines are at hand: they need no pass over all topics.
        for item in chain(*(self._found | {"failed": self._failed()}).values()):
            if key is not None and not all(map(key.allows, _names(item))):
                continue
            kind = item["kind"]
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] <= MOST_OF_A_KIND:
                shown.append(item)
        return {"attention": shown, "attention_counts": counts}

    async def _look(self) -> None:
        if monotonic() < self._good_until:
            return
        if self._looking is None:
            self._looking = asyncio.Lock()
        async with self._looking:
            if monotonic() < self._good_until:
                return
            began = monotonic()
            self._found = await self._pass()
            ended = monotonic()
            self._good_until = ended + (ended - began) * _REST

    def _failed(self) -> list[Item]:
        return [
            {
                "kind": "failed",
                "pipeline": report.name,
                "does": report.kind,
                "why": report.why or None,
                "since_ms": report.since_ms,
            }
            for report in self._node.pipelines.failed()
        ]

    async def _pass(self) -> dict[str, list[Item]]:
        by_kind: dict[str, list[Item]] = {kind: [] for kind in KINDS}
        for told_by, told in self._node.engine.totals.losses_told.recent():
            by_kind["told"].append(
                {
                    "kind": "told",
                    "topic": told_by,
                    "reason": told.reason,
                    "tombstones": told.tombstones,
                    "missed": told.missed,
                    "last_ms": told.last_ms,
                }
            )
        for router in self._node.routers.table.by_id.values():
            if router.is_blocked and router.committed:
                by_kind["blocked"].append(
                    {
                        "kind": "blocked",
                        "router": router.name,
                        "topic": router.source.name,
                        "dest": router.dest.name,
                        "behind": router.source.head - router.cursor,
                    }
                )
        for number, name in enumerate(list(self._node.engine.sorted_names)):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            topic = self._node.engine.find(name)
            if topic is not None:
                for item in self._of_topic(topic):
                    by_kind[item["kind"]].append(item)
        by_kind["overtaken"].sort(key=lambda item: item["in_ms"])
        return by_kind

    def _of_topic(self, topic: Topic) -> Iterator[Item]:
        config = topic.config
        if config.is_queue and config.dead_letter is not None:
            letters = self._node.engine.find(config.dead_letter)
            if letters is not None and letters.live_count:
                yield {
                    "kind": "dead_letters",
                    "topic": topic.name,
                    "dead_letter": letters.name,
                    "count": letters.live_count,
                }
        if topic.holes and config.durability in ("disk", "fsync"):
            lost = sum(hole.last - hole.first + 1 for hole in topic.holes if hole.kind == LOST)
            if lost:
                yield {"kind": "damage", "topic": topic.name, "lost": lost}
        if self._node.cursors.has(topic.name):
            self._node.engine.refresh(topic)
            for cursor in self._node.cursors.of(topic.name):
                yield from self._of_cursor(topic, cursor)

    def _of_cursor(self, topic: Topic, cursor: StoredCursor) -> Iterator[Item]:
        now = self._node.engine.now()
        lag = Cursors.lag(topic, cursor)
        if not lag or cursor.epoch != topic.id:
            return
        about = {"topic": topic.name, "consumer": cursor.consumer, "lag": lag}
        seq = cursor.seq + 1
        if seq < topic.loss_line:
            yield {"kind": "overtaken", **about, "seq": seq, "in_ms": 0, "by": None}
        else:
            left_s, by = time_left(topic, seq, now)
            if left_s < SOON_S:
                yield {"kind": "overtaken", **about, "seq": seq, "in_ms": round(left_s * 1000), "by": by}
        idle = now - cursor.updated_ts
        if idle > STALLED_MS and now - written_ms(topic, seq) > STALLED_MS:
            yield {"kind": "stalled", **about, "age_ms": idle}


def _names(item: Item) -> Iterator[str]:
    return (item[field] for field in ("topic", "router", "dest", "dead_letter", "pipeline") if field in item)
