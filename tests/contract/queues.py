"""A topic as a queue of jobs."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.server import TopicHandle
from tests.support import Answer, eventually

SHORT_MS = 100


class Queue(TopicHandle):
    def ask(self, verb: str, body: Any) -> Answer:
        return self.server.send("POST", f"{self.path}/{verb}", body)

    def do(self, verb: str, *seqs: int, node: str = "w", **fields: Any) -> Any:
        return self.ask(verb, {"node": node, "seqs": list(seqs), **fields}).ok()

    def claim(self, most: int | None = None, node: str = "w", **fields: Any) -> list[Any]:
        if most is not None:
            fields["max"] = most
        body = self.ask("claim", {"node": node, **fields}).ok()
        assert set(body) == {"topic", "count", "ready", "claimed", "performance"}
        assert body["topic"] == self.name
        assert body["count"] == len(body["claimed"])
        jobs: list[Any] = body["claimed"]
        return jobs

    def claimed(self, most: int | None = None, **fields: Any) -> list[int]:
        return [job["$seq"] for job in self.claim(most, **fields)]

    def counters(self) -> tuple[int, int]:
        found = self.state()["queue"]
        return found["ready"], found["in_flight"]

    def wait_for_expiry(self) -> None:
        eventually(lambda: self.counters()[1] == 0)


def as_queue(topic: TopicHandle) -> Queue:
    return Queue(topic.server, topic.name)


def now_ms() -> float:
    return time.time() * 1000
