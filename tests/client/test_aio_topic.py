"""Writes over a connection that is there already go at once; what goes wrong is as with any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
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
        self.keys: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.last: asyncio.StreamWriter | None = None
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
                self.last = writer
                self.keys.append(head.partition(b"Idempotency-Key: ")[2].partition(b"\r")[0].decode())
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
            slots = topic._io._pool().slots
            cancelled = asyncio.create_task(topic.write("cancelled"))
            await listener.until(lambda: len(listener.bodies) == 2)
            assert slots.free == MAX_CONNECTIONS - 1
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert slots.free == MAX_CONNECTIONS
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
            assert pool.slots.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_what_is_not_answered_in_time_is_not_asked_for_beyond_patience() -> None:
    async def scenario() -> None:
        async with writing(timeout_s=0.3, retry_s=0.3) as (listener, topic):
            listener.say = lambda number: None
            with pytest.raises(Uncertain) as uncertain:
                await topic.write("x")
            # Patience is counted from when it was sent: over, when the answer did not come.
            assert listener.keys[1:] == [uncertain.value.idempotency_key]
            assert topic._io._pool().slots.free == MAX_CONNECTIONS

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
            _, first, _, second, _ = zip(listener.bodies, listener.keys, strict=True)
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
            assert listener.keys[1] == listener.keys[2] == listener.keys[3] != ""

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


# --- many at once -----------------------------------------------------------------------------------------


@asynccontextmanager
async def many_writing(**more: Any) -> AsyncIterator[tuple[Listener, AsyncTopic[Any]]]:
    """A topic of which it is known that many write to it, with some connections that are free."""
    async with writing(**more) as (listener, topic):
        await asyncio.gather(*(topic.write(n) for n in range(8)))
        pool = topic._io._pool()
        pool.outbox.note(8, 1)
        assert len(pool.idle) == 8
        listener.bodies.clear()
        listener.keys.clear()
        yield listener, topic


def values(listener: Listener) -> list[Any]:
    return [body["records"][0]["data"] for body in listener.bodies if body]


def test_writes_of_one_turn_go_out_together_and_each_gets_its_own_answer() -> None:
    async def scenario() -> None:
        async with many_writing() as (listener, topic):
            pool = topic._io._pool()
            tasks = [asyncio.create_task(topic.write(n)) for n in range(40)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert pool.slots.free == MAX_CONNECTIONS - 3
            acks = await asyncio.gather(*tasks)
            assert [ack.seq for ack in acks] == [1 + values(listener).index(n) for n in range(40)]
            assert sorted(values(listener)) == list(range(40))
            assert len(set(listener.keys)) == 40
            assert pool.slots.free == MAX_CONNECTIONS
            assert len(pool.idle) == 8

    asyncio.run(scenario())


def test_what_was_not_answered_when_the_connection_ended_is_repeated_under_its_key() -> None:
    state = saying(200, b'{"config":{"idempotency_window_ms":60000}}')

    async def scenario() -> None:
        async with many_writing() as (listener, topic):

            def say(number: int) -> bytes:
                if not listener.keys[-1]:
                    return state
                return b"" if number == 5 else ack(1000 + listener.bodies[-1]["records"][0]["data"])

            listener.say = say
            acks = await asyncio.gather(*(topic.write(n) for n in range(12)))
            assert [ack.seq for ack in acks] == list(range(1000, 1012))
            first = listener.keys[:5]
            # The fifth came again under its key; those behind it had not been looked at.
            again = [key for key in listener.keys[5:] if key]
            assert first[4] in again
            assert not set(first[:4]) & set(again)
            assert len({*first, *again}) == 12
            assert topic._io._pool().slots.free == MAX_CONNECTIONS

    asyncio.run(scenario())


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_a_refusal_is_told_to_the_one_it_is_for(more: bytes) -> None:
    full = saying(422, b'{"error":{"code":"topic_full","message":"full"}}').replace(
        b"\r\n", b"\r\n" + more, 1
    )
    state = saying(200, b'{"config":{"idempotency_window_ms":60000}}')

    async def scenario() -> None:
        async with many_writing() as (listener, topic):

            def say(number: int) -> bytes:
                if not listener.keys[-1]:
                    return state
                return full if values(listener)[-1] == 3 else ack(number)

            listener.say = say
            told = await asyncio.gather(*(topic.write(n) for n in range(8)), return_exceptions=True)
            assert [index for index, one in enumerate(told) if isinstance(one, Refused)] == [3]
            assert sum(not isinstance(one, BaseException) for one in told) == 7
            assert topic._io._pool().slots.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_who_is_cancelled_leaves_the_others_their_answers() -> None:
    async def scenario() -> None:
        async with many_writing() as (listener, topic):
            listener.say = lambda number: None
            tasks = [asyncio.create_task(topic.write(n)) for n in range(6)]
            await asyncio.sleep(0)
            tasks[1].cancel()  # before it went out
            await listener.until(lambda: len(listener.bodies) == 5)
            tasks[2].cancel()
            said = b"".join(ack(100 + value) for value in values(listener))
            assert listener.last is not None
            listener.last.write(said)
            told = await asyncio.gather(*tasks, return_exceptions=True)
            assert [getattr(one, "seq", None) for one in told] == [100, None, None, 103, 104, 105]
            assert topic._io._pool().slots.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_all_that_is_not_answered_in_time_is_uncertain() -> None:
    async def scenario() -> None:
        async with many_writing(timeout_s=0.3, retry_s=0.3) as (listener, topic):
            listener.say = lambda number: None
            told = await asyncio.gather(*(topic.write(n) for n in range(6)), return_exceptions=True)
            assert [type(one) for one in told] == [Uncertain] * 6
            assert len({one.idempotency_key for one in told if isinstance(one, Uncertain)}) == 6
            assert topic._io._pool().slots.free == MAX_CONNECTIONS

    asyncio.run(scenario())


def test_where_each_is_answered_by_itself_each_goes_by_itself() -> None:
    """Behind a proxy, one would wait for the other."""

    async def scenario() -> None:
        async with many_writing() as (_, topic):
            outbox, now = topic._io._pool().outbox, monotonic()
            for _ in range(7):
                outbox.note(8, 8)
            outbox.note(8, 1)
            for _ in range(7):
                outbox.note(8, 4)
            assert outbox.gathers(now)
            outbox.note(8, 4)
            assert not outbox.gathers(now)
            assert (await topic.write("alone")).seq == 1
            outbox.note(8, 1)
            assert not outbox.gathers(now)
            assert outbox.gathers(now + 60)

    asyncio.run(scenario())
