"""A topic as a queue of jobs."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.server import TOMBSTONE_KEYS, TopicHandle
from tests.support import Answer, eventually

SHORT_MS = 100


class Queue(TopicHandle):
    # What the last claim was told of lost jobs.
    tombstone: Any = None

    def told(self, **fields: Any) -> tuple[int, int, int, str] | None:
        """First, last and number of the lost jobs that a claim is told of, and why."""
        self.claim(**fields)
        gap = self.tombstone
        if gap is None:
            return None
        assert set(gap) == TOMBSTONE_KEYS
        state = self.state()
        assert (gap["earliest_seq"], gap["head_seq"]) == (state["earliest_seq"], state["head_seq"])
        return gap["gap_from"], gap["gap_to"], gap["missed_estimate"], gap["reason"]

    def ask(self, verb: str, body: Any) -> Answer:
        return self.server.send("POST", f"{self.path}/{verb}", body)

    def do(self, verb: str, *seqs: int, node: str = "w", **fields: Any) -> Any:
        return self.ask(verb, {"node": node, "seqs": list(seqs), **fields}).ok()

    def answer(self, verb: str, *seqs: int, **fields: Any) -> Any:
        """Any of the three things a holder may do; an extension needs to know by how much."""
        return self.do(verb, *seqs, **fields, **({"lease_ms": 1000} if verb == "extend" else {}))

    def claim(self, most: int | None = None, node: str = "w", **fields: Any) -> list[Any]:
        if most is not None:
            fields["max"] = most
        body = self.ask("claim", {"node": node, **fields}).ok()
        assert set(body) == {"topic", "count", "ready", "claimed", "tombstone", "performance"}
        assert body["topic"] == self.name
        self.tombstone = body["tombstone"]
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
