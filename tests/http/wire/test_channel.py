"""The lower half of a connection: writing, pressure in both directions, the end, and being taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from topics.http.door.callers import Callers
from topics.http.door.keys import KeyRing
from topics.http.door.readiness import Readiness
from topics.http.wire.channel import CLOSED, DEAF, HTTP, LINGER, RAW, STREAM, Channel
from topics.http.wire.context import Limits, WireContext
from topics.http.wire.routing import RouteTree
from topics.values.settings import Settings


class Transport(asyncio.Transport):
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.calls: list[str] = []
        self.closing = False
        self.buffered = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def write_eof(self) -> None:
        self.calls.append("eof")

    def close(self) -> None:
        self.closing = True
        self.calls.append("close")

    def abort(self) -> None:
        self.closing = True
        self.calls.append("abort")


class Plain(Channel):
    __slots__ = ("considered",)

    def __init__(self, context: WireContext) -> None:
        super().__init__(context)
        self.considered = 0

    @property
    def busy(self) -> bool:
        return False

    def progress(self) -> tuple[int, int]:
        return 0, 0

    def reconsider(self) -> None:
        self.considered += 1


def connect(**settings: int) -> tuple[Plain, Transport]:
    context = WireContext(
        settings=Settings(**settings),
        routes=RouteTree([]),
        keyring=KeyRing([]),
        callers=Callers(Settings(), keys_needed=False, bound=[], is_exposed=False),
        readiness=Readiness(),
        loop=asyncio.get_running_loop(),
        limits=Limits(linger_bytes=10),
    )
    channel, transport = Plain(context), Transport()
    channel.connection_made(transport)
    return channel, transport


def connected(scenario: Callable[[Plain, Transport], None], **settings: int) -> None:
    async def main() -> None:
        scenario(*connect(**settings))

    asyncio.run(main())


def test_a_connection_is_counted_while_it_lasts() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        context = channel.context
        assert (context.open_connections, context.request_log.connections) == (1, 1)
        channel.connection_lost(None)
        assert (channel.mode, context.open_connections, context.request_log.connections) == (CLOSED, 0, 1)

    connected(scenario)


def test_one_too_many_is_told_so_and_closed() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        second, its_transport = Plain(channel.context), Transport()
        second.connection_made(its_transport)
        assert b"429" in its_transport.written[0]
        assert (second.mode, its_transport.calls) == (CLOSED, ["close"])
        assert channel.context.open_connections == 1

    connected(scenario, max_connections=1)


@pytest.mark.parametrize(("size", "writes"), [(10, 1), (64 * 1024, 2)])
def test_a_large_body_is_not_copied_behind_its_head(size: int, writes: int) -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        channel.write_answer(b"Content-Length: ", b"x" * size)
        assert len(transport.written) == writes
        assert b"".join(transport.written) == b"Content-Length: %d\r\n\r\n" % size + b"x" * size

    connected(scenario)


def test_reading_is_paused_and_resumed_once() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        channel.resume_reading()
        channel.pause_reading()
        channel.pause_reading()
        channel.resume_reading()
        channel.resume_reading()
        assert transport.calls == ["pause", "resume"]
        transport.closing = True
        channel.pause_reading()
        assert transport.calls == ["pause", "resume"]

    connected(scenario)


def test_a_client_that_does_not_read_is_waited_for() -> None:
    async def main() -> None:
        channel, _ = connect()
        await channel.drained()
        channel.pause_writing()
        assert (channel.choked, channel.considered) == (True, 1)
        waiting = asyncio.ensure_future(channel.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        channel.resume_writing()
        await waiting
        assert (channel.choked, channel.considered) == (False, 2)
        channel.pause_writing()
        waiting = asyncio.ensure_future(channel.drained())
        await asyncio.sleep(0)
        channel.connection_lost(None)
        await waiting

    asyncio.run(main())


def test_with_unread_input_the_client_gets_to_read_the_last_answer() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        channel.end(unread=True)
        assert (channel.mode, transport.calls) == (LINGER, ["eof"])
        channel.ignore(b"x" * 10)
        assert transport.calls == ["eof"]
        channel.ignore(b"x")
        assert transport.calls == ["eof", "abort"]

    connected(scenario)


def test_without_it_the_connection_is_closed_at_once() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        channel.end(unread=False)
        assert (channel.mode, transport.calls) == (CLOSED, ["close"])
        channel.end(unread=True)
        assert (channel.mode, transport.calls) == (CLOSED, ["close"])

    connected(scenario)


def test_another_protocol_gets_what_came_before_its_receiver() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        assert channel.hand_over(RAW)
        channel.ignore(b"a")
        channel.ignore(b"b")
        received: list[bytes] = []
        channel.set_receiver(received.append)
        channel.ignore(b"c")
        assert received == [b"ab", b"c"]
        assert channel in channel.context.streams
        assert channel not in channel.context.connections

    connected(scenario)


@pytest.mark.parametrize(("mode", "taken"), [(HTTP, True), (DEAF, True), (LINGER, False), (CLOSED, False)])
def test_only_a_connection_that_still_answers_is_taken_over(mode: int, taken: bool) -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        channel.mode = mode
        assert channel.hand_over(STREAM) is taken
        assert channel.mode == (STREAM if taken else CLOSED)

    connected(scenario)


def test_the_end_is_told_once_and_one_callback_that_fails_spares_the_others() -> None:
    def scenario(channel: Plain, transport: Transport) -> None:
        told: list[str] = []

        def fail() -> None:
            raise RuntimeError

        assert channel.add_closer(fail)
        assert channel.add_closer(lambda: told.append("a"))
        channel.connection_lost(None)
        channel.connection_lost(None)
        assert told == ["a"]
        assert not channel.add_closer(lambda: told.append("late"))

    connected(scenario)
