"""A server with queues and a clock that only moves when told to, and short ways of talking to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.http.streaming import EventReader, RunningApp
from tests.support import Answer
from topics.core.clock import ManualClock
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.queue import JobQueue

LEASE_MS = 1000


class QueueApp(RunningApp):
    clock: ManualClock

    def __init__(self, directory: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        super().__init__(directory, self.clock, **settings)

    def put(self, name: str = "q", **config: Any) -> None:
        """A queue with a lease of a second, unless told otherwise."""
        answer = self.call("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": LEASE_MS} | config)
        assert answer.status in (200, 201), answer.body

    def ask(self, verb: str, name: str = "q", **body: Any) -> Answer:
        return self.call("POST", f"/v0/topics/{name}/{verb}", body)

    def do(self, verb: str, name: str = "q", **body: Any) -> Any:
        """The answer without its timing, which has to be there."""
        answer = self.ask(verb, name, **body)
        assert answer.status == 200, answer.body
        result = answer.json
        assert result.pop("performance")["server_total_ms"] >= 0
        assert result.pop("topic") == name
        return result

    def claim(self, most: int = 1, node: str = "w", **body: Any) -> list[Any]:
        claimed: list[Any] = self.do("claim", node=node, max=most, **body)["claimed"]
        return claimed

    def state(self, name: str = "q") -> Any:
        return self.call("GET", f"/v0/topics/{name}?touch=false").json

    def counters(self, name: str = "q") -> tuple[int, int, int]:
        counters = self.state(name)["queue"]
        assert set(counters) == {"ready", "in_flight", "dead_lettered"}
        return counters["ready"], counters["in_flight"], counters["dead_lettered"]

    def _queue(self) -> JobQueue:
        return self.app.node.queues.of(self.app.node.engine.require("q"))

    def window(self) -> list[Claim]:
        """Who waits in the window of the queue just now."""
        claims: list[Claim] = self.inside(lambda: list(self._queue().dispatcher.window))
        return claims

    def close_window(self) -> None:
        self.inside(lambda: self._queue().dispatcher.close_window())

    def work(self, query: str = "node=w", name: str = "q", **headers: str) -> EventReader:
        reader = EventReader(self.address, f"/v0/topics/{name}/work?{query}", headers)
        self._clients.append(reader)
        return reader
