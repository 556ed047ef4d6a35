"""Dead letters back into their queues, and who holds which job."""

import asyncio
from collections.abc import Callable
from heapq import nsmallest

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import ApiError, invalid
from topics.flow.queues.dead_letters import LetterBatch, Redrive
from topics.flow.queues.leases import JobLease
from topics.flow.queues.queue import JobQueue
from topics.flow.queues.registry import Queues
from topics.http.admission.auth import READ, WRITE, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import cursor_after, page_size, seq_at_start_of_page, unsigned_or_none
from topics.http.routes.queues import queue_of
from topics.http.routes.service import Service, answer, check_name
from topics.http.routing import Body, Route
from topics.log import Topic, parse_match


class RedriveBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    max: int | UnsetType = UNSET
    match: str | list[object] | None = None
    into: str | None = None


class RedriveRoutes:
    def __init__(self, service: Service, queues: Queues) -> None:
        self._service = service
        self._queues = queues
        # By topic, what is on its way out of it.
        self._moving: dict[Topic, set[int]] = {}

    def routes(self) -> list[Route]:
        one = "/v0/topics/:topic"
        paging = ("page_size", "cursor")
        return [
            Route("GET", one + "/leases", self.leases, scopes=READ, query=paging),
            Route(
                "POST", one + "/redrive", self.redrive, scopes=WRITE, body=Body.OPTIONAL, accepts=RedriveBody
            ),
        ]

    def leases(self, exchange: Exchange) -> None:
        after = seq_at_start_of_page(exchange)
        size = page_size(exchange)
        queue = queue_of(exchange, self._service, self._queues)
        queue.refresh()
        held = queue.table.leases
        seqs = nsmallest(size + 1, (seq for seq in held if seq > after))
        body = {"topic": exchange.name, "leases": [_listed(queue, held[seq]) for seq in seqs[:size]]}
        if len(seqs) > size:
            body["next_cursor"] = cursor_after(str(seqs[size - 1]))
        answer(exchange, body)

    async def redrive(self, exchange: Exchange, body: RedriveBody) -> None:
        most = unsigned_or_none(body.max, "max")
        match = None if body.match is None else parse_match(body.match)
        if body.into is not None:
            check_name(exchange.key, body.into)
        engine = self._service.engine
        engine.require(exchange.name)
        into = None if body.into is None else self._queues.of(engine.require(body.into)).topic
        topic = self._service.current_topic(exchange)
        if into is topic:
            raise invalid("into must be another topic")
        moving = self._moving.setdefault(topic, set())
        walk = Redrive(engine, topic, moving, self._target_finder(exchange.key, topic, into), most, match)
        try:
            await self._move_all(walk)
        finally:
            if not moving:
                self._moving.pop(topic, None)
        told = {
            "topic": topic.name,
            "moved": walk.moved,
            "skipped": walk.skipped,
            "more": walk.has_more,
        }
        answer(exchange, told)

    def _target_finder(
        self, key: ApiKey | None, letters: Topic, into: Topic | None
    ) -> Callable[[str | None], Topic | None]:
        def find(origin: str | None) -> Topic | None:
            if into is not None:
                return into
            if origin is None or not (key is None or key.allows(origin)):
                return None
            topic = self._service.engine.find(origin)
            return None if topic is None or topic is letters or not topic.config.is_queue else topic

        return find

    async def _move_all(self, walk: Redrive) -> None:
        """A refusal ends it: what has been moved by then stays so, and is told."""
        while not walk.is_over:
            for part in walk.step():
                try:
                    await self._move(walk, part)
                except ApiError:
                    if not walk.moved:
                        raise
                    return
            await asyncio.sleep(0)

    async def _move(self, walk: Redrive, part: LetterBatch) -> None:
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not moved.done():
                moved.set_result(None)

        def fail(error: ApiError) -> None:
            if not moved.done():
                moved.set_exception(error)

        def work() -> None:
            walk.move(part, done, fail)

        await self._service.admission.enter_in_turn(part.target.name, part.size, work)
        await moved


def _listed(queue: JobQueue, lease: JobLease) -> dict[str, object]:
    return {
        "$seq": lease.seq,
        "node": lease.node,
        "lease_id": f"lease_{lease.id:x}",
        "deadline": queue.unix_ms(lease.deadline),
        "deliveries": queue.table.deliveries.get(lease.seq, 0),
    }
