"""Writes over a connection that is there already go at once; what goes wrong is as with any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from topics import AsyncTopics, Refused, Uncertain
from topics.client.aio_topic import AsyncTopic
from topics.client.wire.async_pool import MAX_CONNECTIONS

Say = Callable[[int], bytes | None]


def saying(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Told\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def ack(number: int) -> bytes:
    seq = b'"first_seq":%d,"last_seq":%d' % (number, number)
    return saying(200, b'{"topic":"t","epoch":1,%b,"count":1,"deduped":false}' % seq)


class Listener:
    """Answers as it is told, by the number of the request; None is silence, empty the end."""

    def __init__(self) -> None:
        self.say: Say = ack
        self.bodies: list[dict[str, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.came = asyncio.Condition()
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        self.writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or b"0")
                body = await reader.readexactly(length)
                self.bodies.append(json.loads(body or b"{}"))
                await self.tell()
                said = self.say(len(self.bodies))
                if said == b"":
                    break
                writer.write(said or b"")
        self.ended += 1
        await self.tell()
        writer.close()

    async def tell(self) -> None:
        async with self.came:
            self.came.notify_all()

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.came:
            await self.came.wait_for(what)


@asynccontextmanager
async def writing(**more: Any) -> AsyncIterator[tuple[Listener, AsyncTopic[Any]]]:
    """A topic into which one record was written: there is a connection that is free."""
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    try:
        async with AsyncTopics(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **more) as client:
            topic = client.topic("t")
            assert (await topic.write("first")).seq == 1
            yield listener, topic
    finally:
        server.close()
        await asyncio.gather(*filter(None, listener.tasks))


def test_a_write_that_is_cancelled_leaves_its_answer_to_nobody() -> None:
    async def scenario() -> None:
        async with writing() as (listener, topic):
            listener.say = lambda number: None
            places = topic._io._pool().places
            cancelled = asyncio.create_task(topic.write("cancelled"))
            await listener.until(lambda: len(listener.bodies) == 2)
            assert places.free == MAX_CONNECTIONS - 1
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert places.free == MAX_CONNECTIONS
            await listener.until(lambda: listener.ended == 1)
            listener.say = ack
            assert (await topic.write("next")).seq == 3

    asyncio.run(scenario())


def test_an_answer_that_came_before_the_cancelled_could_say_so_harms_nobody() -> None:
    async def scenario() -> None:
        async with writing() as (_, topic):
            pool = topic._io._pool()
            [connection] = pool.idle
            cancelled = asyncio.create_task(topic.write("cancelled"))
            await asyncio.sleep(0)
            cancelled.cancel()
            said = ack(2)
            connection.get_buffer(-1)[: len(said)] = said
            connection.buffer_updated(len(said))
            assert pool.idle == [connection]
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert pool.idle == [connection]
            assert pool.places.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_what_is_not_answered_in_time_is_not_asked_for_beyond_patience() -> None:
    async def scenario() -> None:
        async with writing(timeout_s=0.3, retry_s=0.3) as (listener, topic):
            listener.say = lambda number: None
            with pytest.raises(Uncertain) as uncertain:
                await topic.write("x")
            # Patience is counted from when it was sent: over, when the answer did not come.
            assert [body["idempotency_key"] for body in listener.bodies[1:]] == [
                uncertain.value.idempotency_key
            ]
            assert topic._io._pool().places.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_a_connection_that_ends_instead_of_an_answer_has_the_write_repeated_under_its_key() -> None:
    def say(number: int) -> bytes:
        # Behind the end, the client looks whether its key is still known; then it asks again.
        state = b'{"config":{"idempotency_window_ms":60000}}'
        return {2: b"", 3: saying(200, state), 5: saying(200, state)}.get(number, ack(number))

    async def scenario() -> None:
        async with writing() as (listener, topic):
            listener.say = say
            assert (await topic.write("again")).seq == 4
            _, first, _, second, _ = listener.bodies
            assert first == second

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (saying(200, b"<html>"), "unknown"),
        (saying(204, b""), "unknown"),
        (saying(422, b'{"error":{"code":"topic_full","message":"full"}}'), "topic_full"),
    ],
)
def test_other_answers_are_told(said: bytes, code: str) -> None:
    async def scenario() -> None:
        async with writing() as (listener, topic):
            listener.say = lambda number: said
            with pytest.raises(Refused) as refused:
                await topic.write("x")
            assert refused.value.code == code
            assert len(listener.bodies) == 2

    asyncio.run(scenario())


def test_a_refusal_that_passes_is_waited_out() -> None:
    async def scenario() -> None:
        busy = saying(429, b'{"error":{"code":"throttled","message":"later"}}')
        async with writing() as (listener, topic):
            listener.say = lambda number: busy if number < 4 else ack(number)
            assert (await topic.write("x")).seq == 4
            assert listener.bodies[1] == listener.bodies[2] == listener.bodies[3]

    asyncio.run(scenario())


def test_a_server_that_says_more_than_it_was_asked_is_not_asked_again_over_that_connection() -> None:
    async def scenario() -> None:
        async with writing() as (listener, topic):
            [connection] = topic._io._pool().idle
            listener.writers[0].write(ack(1000))
            await listener.until(lambda: listener.ended == 1)
            assert not connection.is_usable
            assert (await topic.write("next")).seq == 2

    asyncio.run(scenario())
