"""An engine with queues, driven by hand: every call commits before it returns, and time stands still."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.log.harness import Lab
from topics.core.errors import ApiError
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.leases import Holder
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import JobQueue, Settlement, Verb
from topics.flow.queues.registry import Queues
from topics.log.write.operation import Fail

LEASE_MS = 1000


# First, last, number and reason of what a worker is told to be lost.
Told = tuple[int, int, int, str]


class QueueLab(Lab):
    queues: Queues
    # What the last claim was told, and which jobs the last answer called lost.
    told: Told | None = None
    lost: list[int]

    def _telling(self, done: Callable[[Any], None]) -> Callable[[Settlement], None]:
        """Answer how many were settled, and which were skipped."""

        def told(settled: Settlement) -> None:
            self.lost = settled.lost
            done((len(settled.seqs), settled.skipped))

        return told

    def layer(self) -> None:
        self.queues = Queues(self.engine)
        for extension in self.queues.extensions:
            self.engine.register(extension)

    def recovered(self) -> None:
        self.queues.start()
        self.queues.losses.start()
        self.engine.queue.flush()

    def commit(self, call: Callable[[Callable[[Any], None], Fail], None]) -> Any:
        """A claim that moves dead letters takes two commits when leases are durable."""

        def call_and_commit(done: Callable[[Any], None], fail: Fail) -> None:
            call(done, fail)
            self.engine.queue.sync_now()

        return super().commit(call_and_commit)

    def put(self, name: str, **config: Any) -> bool:
        """A queue with a lease of a second, unless told otherwise."""
        return super().put(name, **{"type": "queue", "lease_ms": LEASE_MS} | config)

    def queue(self, name: str = "q") -> JobQueue:
        return self.queues.of(self.topic(name))

    def claim(
        self, wanted: int = 1, node: str = "w", *, name: str = "q", holder: Holder | None = None
    ) -> list[Any]:
        lease_ms = self.topic(name).config.lease_ms

        def call(done: Any, fail: Any) -> None:
            self.queue(name).serve([Claim(node, wanted, lease_ms, done, fail, holder)])

        claim = self.commit(call)
        self.told = hear(self.queue(name), claim)
        return jobs(claim)

    def ack(self, *seqs: int, node: str = "w", token: int | None = None) -> tuple[int, list[int]]:
        def call(done: Any, fail: Any) -> None:
            guarded = [(seq, token) for seq in seqs]
            self.queue().settle(Settlement(Verb.ACK, node, guarded, self._telling(done), fail))

        answer: tuple[int, list[int]] = self.commit(call)
        return answer

    def nack(self, *seqs: int, node: str = "w", delay_ms: int = 0) -> tuple[int, list[int]]:
        def call(done: Any, fail: Any) -> None:
            guarded = [(seq, None) for seq in seqs]
            self.queue().settle(Settlement(Verb.NACK, node, guarded, self._telling(done), fail, delay_ms))

        answer: tuple[int, list[int]] = self.commit(call)
        return answer

    def extend(
        self, *seqs: int, node: str = "w", lease_ms: int = LEASE_MS
    ) -> tuple[dict[int, int], list[int]]:
        def call(done: Any, fail: Any) -> None:
            def told(settled: Settlement) -> None:
                self.lost = settled.lost
                done((dict.fromkeys(settled.seqs, settled.deadline), settled.skipped))

            guarded = [(seq, None) for seq in seqs]
            self.queue().settle(Settlement(Verb.EXTEND, node, guarded, told, fail, lease_ms=lease_ms))

        answer: tuple[dict[int, int], list[int]] = self.commit(call)
        return answer

    def counters(self, name: str = "q") -> tuple[int, int, int]:
        """Ready, in flight, dead-lettered; checked against the topic's own count."""
        queue = self.queue(name)
        self.engine.refresh(queue.topic)
        counters = queue.counters()
        delayed = len(queue.table.delayed)
        assert counters["ready"] + counters["in_flight"] + delayed == queue.topic.live_count
        return counters["ready"], counters["in_flight"], counters["dead_lettered"]

    def break_the_disk(self) -> None:
        def refuse(_: list[bytes]) -> None:
            raise OSError("no space left on device")

        self.engine.journal.write = refuse  # type: ignore[method-assign]


def hear(queue: JobQueue, claim: Claim) -> Told | None:
    """The worker reads its answer."""
    if claim.notice is None:
        return None
    queue.told(claim.notice)
    queue.engine.queue.flush()
    return in_short(claim.notice)


def in_short(notice: Notice) -> Told:
    gap = notice.tombstone
    return gap.gap_from, gap.gap_to, gap.missed_estimate, gap.reason


def jobs(claim: Claim) -> list[Any]:
    return [json.loads(b"{" + text) for _, text in claim.jobs]


def numbers(claimed: list[Any]) -> list[int]:
    return [job["$seq"] for job in claimed]


def unexpected(error: ApiError) -> None:
    raise AssertionError(error)


def fill(lab: QueueLab, count: int) -> None:
    lab.write("q", *range(count))
