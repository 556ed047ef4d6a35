"""Waiting on asyncio: in time, in turn, and for as many at once as there are slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from topics.client.wire.async_io import AsyncIO
from topics.client.wire.async_pool import MAX_CONNECTIONS, Slots
from topics.client.wire.requests import KEY_HEADER, Broken, WireRequest, address_of, render_keyed

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Listener:
    """Answers each request when it is let, and counts those that are under way."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.under_way = self.most = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._changed = asyncio.Condition()
        self._connections: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                self.asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b" HTTP")[0])
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                async with self._changed:
                    self._changed.notify_all()
                await self.may_answer.wait()
                self.under_way -= 1
                writer.write(ANSWER)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def until_under_way(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.under_way == count)

    async def end(self) -> None:
        self.may_answer.set()
        await asyncio.gather(*filter(None, self._connections))


@asynccontextmanager
async def listening(timeout_s: float = 60) -> AsyncIterator[tuple[Listener, AsyncIO]]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, backlog=2 * MAX_CONNECTIONS)
    port = server.sockets[0].getsockname()[1]
    io = AsyncIO(address_of(f"http://127.0.0.1:{port}", None), timeout_s)
    try:
        yield listener, io
    finally:
        await io.close()
        await listener.end()
        server.close()


def get(target: str, wait_s: float = 0.0) -> WireRequest:
    return WireRequest(method="GET", target=target, wait_s=wait_s)


def test_a_short_wait_behind_a_long_one_ends_in_its_own_time() -> None:
    async def scenario() -> None:
        async with listening(timeout_s=0.05) as (listener, io):
            await io.round_trip(get("/long", wait_s=3600))  # its timer has an hour to go
            listener.may_answer.clear()
            with pytest.raises(Broken, match="no answer in time"):
                await io.round_trip(get("/short"))
            assert listener.asked == [b"GET /long", b"GET /short"]

    asyncio.run(scenario())


def test_a_long_wait_behind_a_short_one_is_not_cut_short() -> None:
    async def scenario() -> None:
        async with listening(timeout_s=0.05) as (listener, io):
            await io.round_trip(get("/short"))
            listener.may_answer.clear()
            asyncio.get_running_loop().call_later(0.2, listener.may_answer.set)
            assert (await io.round_trip(get("/long", wait_s=3600))).body == b"{}"

    asyncio.run(scenario())


def test_more_than_so_many_wait_their_turn_and_those_that_go_away_hold_up_nobody() -> None:
    async def scenario() -> None:
        async with listening() as (listener, io):
            listener.may_answer.clear()
            first = [
                asyncio.create_task(io.round_trip(get(f"/{number}"))) for number in range(MAX_CONNECTIONS)
            ]
            await listener.until_under_way(MAX_CONNECTIONS)
            late = [asyncio.create_task(io.round_trip(get(f"/late{number}"))) for number in range(3)]
            silent = asyncio.create_task(io.round_trip(get("/silent", wait_s=3600)))  # takes no place
            await listener.until_under_way(MAX_CONNECTIONS + 1)
            late[0].cancel()
            listener.may_answer.set()
            await asyncio.gather(*first, *late[1:], silent)
            assert listener.most == MAX_CONNECTIONS + 1
            assert b"GET /late0" not in listener.asked

    asyncio.run(scenario())


def test_one_that_is_called_and_goes_away_lets_the_next_in() -> None:
    async def scenario() -> None:
        slots = Slots(asyncio.get_running_loop())
        slots.free = 0
        called, next_one = (asyncio.create_task(slots.wait()) for _ in range(2))
        await asyncio.sleep(0)
        slots.give_back()
        called.cancel()
        async with asyncio.timeout(30):
            await next_one

    asyncio.run(scenario())


def test_a_write_that_goes_at_once_is_the_request_that_an_operation_would_send() -> None:
    address = address_of("http://127.0.0.1:4000/below", "secret")
    request = WireRequest(method="POST", target="/v0/topics/t", body=b"{}", headers=((KEY_HEADER, "k"),))
    assert render_keyed(address.before_headers(request), "k", b"{}") == address.render(request)
