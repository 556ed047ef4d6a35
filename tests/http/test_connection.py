"""A connection: how it is counted, pauses reading, waits for its client, ends and is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from topics.core.settings import Settings
from topics.http.admission.auth import KeyRing
from topics.http.admission.callers import Callers
from topics.http.admission.readiness import Readiness
from topics.http.connection import CLOSED, HTTP, LINGER, NO_MORE_INPUT, STREAM, UPGRADED, Connection
from topics.http.context import Limits, WireContext
from topics.http.exchange import Exchange
from topics.http.routing import Route, RouteTree
from topics.http.stream import Stream, Upgraded


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


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = REQUEST[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Talk:
    """A connection without a network, and the requests that it has given to a handler."""

    def __init__(self, **settings: int) -> None:
        self.asked: list[Exchange] = []
        readiness = Readiness()
        readiness.admit()
        self.context = WireContext(
            settings=Settings(**settings),
            routes=RouteTree([Route("GET", "/", self.asked.append)]),
            keyring=KeyRing([]),
            callers=Callers(Settings(allowed_hosts="*"), keys_needed=False, bound=[], is_exposed=False),
            readiness=readiness,
            loop=asyncio.get_running_loop(),
            limits=Limits(linger_bytes=10),
        )
        self.connection, self.transport = self.connect()

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self.context), Transport()
        connection.connection_made(transport)
        return connection, transport

    def ask(self, request: bytes = REQUEST) -> Exchange:
        self.connection.data_received(request)
        return self.asked[-1]


def talk(scenario: Callable[[Talk], None], **settings: int) -> None:
    async def main() -> None:
        scenario(Talk(**settings))

    asyncio.run(main())


@pytest.mark.parametrize(("size", "writes"), [(10, 1), (64 * 1024, 2)])
def test_a_large_body_is_not_copied_behind_its_head(size: int, writes: int) -> None:
    def scenario(talk: Talk) -> None:
        talk.ask().reply(b"x" * size)
        assert len(talk.transport.written) == writes
        assert b"".join(talk.transport.written).endswith(b"Content-Length: %d\r\n\r\n" % size + b"x" * size)

    talk(scenario)


def test_reading_is_paused_and_resumed_once() -> None:
    def scenario(talk: Talk) -> None:
        connection, transport = talk.connection, talk.transport
        connection.resume_reading()
        connection.pause_reading()
        connection.pause_reading()
        connection.resume_reading()
        connection.resume_reading()
        assert transport.calls == ["pause", "resume"]
        transport.closing = True
        connection.pause_reading()
        assert transport.calls == ["pause", "resume"]

    talk(scenario)


def test_another_protocol_gets_what_came_before_its_receiver() -> None:
    def scenario(talk: Talk) -> None:
        upgraded = talk.ask(UPGRADE + b"a").upgrade()
        talk.connection.data_received(b"b")
        received: list[bytes] = []
        upgraded.set_receiver(received.append)
        talk.connection.data_received(b"c")
        assert received == [b"ab", b"c"]
        assert talk.connection in talk.context.streams
        assert talk.connection not in talk.context.connections

    talk(scenario)


@pytest.mark.parametrize(
    ("mode", "taken"), [(HTTP, True), (NO_MORE_INPUT, True), (LINGER, False), (CLOSED, False)]
)
@pytest.mark.parametrize("is_upgrade", [False, True])
def test_only_a_connection_that_still_replies_is_handed_over(
    mode: int, taken: bool, is_upgrade: bool
) -> None:
    def scenario(talk: Talk) -> None:
        talk.connection.mode = mode
        stream = (
            Upgraded(talk.transport, None, {}, talk.context.request_room)
            if is_upgrade
            else Stream(talk.transport, chunked=True)
        )
        assert talk.connection.hand_over(stream, is_upgrade=is_upgrade, is_endless=True) is taken
        assert talk.connection.mode == ((UPGRADED if is_upgrade else STREAM) if taken else CLOSED)

    talk(scenario)


def test_the_end_is_told_once_and_one_callback_that_fails_spares_the_others() -> None:
    def scenario(talk: Talk) -> None:
        told: list[str] = []

        def fail() -> None:
            raise RuntimeError

        stream = talk.ask().open_stream(b"text/event-stream")
        stream.on_close(fail)
        stream.on_close(lambda: told.append("a"))
        talk.connection.connection_lost(None)
        talk.connection.connection_lost(None)
        assert told == ["a"]
        stream.on_close(lambda: told.append("late"))
        assert told == ["a", "late"]

    talk(scenario)
