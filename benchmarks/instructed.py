"""The server's code without a network, so that its instructions can be counted.

    requests ─▶ the connection's protocol ─▶ everything behind it ─▶ a transport that only looks at the bytes

Every piece of work is done a while for nothing, then several times between two marks. A mark is a call of
`getsid`, which nothing else here calls: `benchmarks.instructions` runs this under callgrind, which writes its
counters down there.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

from benchmarks.payloads import COMPACT, NAMED
from topics.core.settings import Settings
from topics.flow.load_shedder import SAMPLE_S, Level
from topics.http.app import Application
from topics.http.connection import Connection

TOPIC, NAMED_TOPIC = "counted", "named"
CONNECTIONS, WATCHERS, BATCH, PAGE = 16, 100, 100, 1000
_LAST_CHUNK = b"0\r\n\r\n"
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")


class Arrivals:
    """Lets one wait until so many more answers, or pieces of streams, have come."""

    def __init__(self) -> None:
        self._missing = 0
        self._all_there: asyncio.Future[None] | None = None

    def expect(self, number: int) -> asyncio.Future[None]:
        self._missing = number
        self._all_there = asyncio.get_running_loop().create_future()
        return self._all_there

    def one(self) -> None:
        self._missing -= 1
        if not self._missing and self._all_there is not None:
            self._all_there.set_result(None)


class Transport(asyncio.Transport):
    """Takes everything, and tells when an answer is complete."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals = arrivals
        self.received = b""
        self._missing = 0

    def write(self, data: Any) -> None:
        if self._missing:
            self._missing -= len(data)
        elif data[:8] == b"HTTP/1.1":
            self.received = bytes(data)
            head, _, body = self.received.partition(b"\r\n\r\n")
            length = _LENGTH.search(head + b"\r\n")
            self._missing = int(length[1]) - len(body) if length else 0
            if length is None and not data.endswith(_LAST_CHUNK):
                return
        elif not data.endswith(_LAST_CHUNK):
            return
        if not self._missing:
            self._arrivals.one()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def can_write_eof(self) -> bool:
        return True

    def _nothing(self) -> None:
        return None

    close = abort = pause_reading = resume_reading = write_eof = _nothing


class Pieces(Transport):
    """Of a stream: every piece counts."""

    def write(self, data: Any) -> None:
        self._arrivals.one()


class Client:
    def __init__(self, app: Application, transport: Transport) -> None:
        self._transport = transport
        self._connection = Connection(app.server.context)
        self._connection.connection_made(transport)

    def send(self, request: bytes) -> None:
        self._connection.data_received(request)

    @property
    def body(self) -> bytes:
        """Of the last answer."""
        return self._transport.received.partition(b"\r\n\r\n")[2]


def post(target: str, body: bytes, method: str = "POST", more: str = "") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Work(NamedTuple):
    name: str
    # How many records one step is for.
    records: int
    step: Callable[[], Awaitable[None]]
    # Short ones are done more often: timers of the server count for whoever is there.
    times: int = 1


class Bench:
    def __init__(self, app: Application) -> None:
        self._app = app
        self._answers, self._pieces = Arrivals(), Arrivals()
        self._clients = [Client(app, Transport(self._answers)) for _ in range(CONNECTIONS)]

    async def _ask(self, request: bytes, connections: int = 1) -> None:
        answered = self._answers.expect(connections)
        for client in self._clients[:connections]:
            client.send(request)
        await answered

    async def works(self) -> list[Work]:
        for topic in (TOPIC, NAMED_TOPIC):
            await self._ask(post(f"/v0/topics/{topic}", b'{"durability":"disk"}', "PUT"))
        single = post(f"/v0/topics/{TOPIC}", COMPACT.body([1]))
        # In a topic of its own: where some records have tags, all are kept in another way.
        named = post(f"/v0/topics/{NAMED_TOPIC}", NAMED.body([1]))
        batch = post(f"/v0/topics/{TOPIC}", COMPACT.body(range(BATCH)))
        diff = post(f"/v0/topics/{TOPIC}/diff", b'{"from_seq":0,"limit":%d}' % PAGE)
        scan = post(f"/v0/topics/{TOPIC}/scan", b'{"from_seq":1,"to_seq":%d}' % PAGE)
        for _ in range(2 * PAGE // BATCH):
            await self._ask(batch)
        return [
            Work("append, single, one connection", 1, partial(self._ask, single), 16),
            Work(
                f"append, single, {CONNECTIONS} connections",
                CONNECTIONS,
                partial(self._ask, single, CONNECTIONS),
                4,
            ),
            Work(
                f"append, single, {CONNECTIONS} connections, {NAMED.name}",
                CONNECTIONS,
                partial(self._ask, named, CONNECTIONS),
                4,
            ),
            Work(f"append, batches of {BATCH}", BATCH, partial(self._ask, batch), 4),
            Work(f"diff of {PAGE}", PAGE, partial(self._ask, diff)),
            Work(f"scan of {PAGE}", PAGE, partial(self._ask, scan), 2),
            Work(f"delivery, {WATCHERS} watchers", WATCHERS, await self._delivery("shared", own=False)),
            Work(
                f"delivery, {WATCHERS} watchers, each without its own node's records",
                WATCHERS - 1,
                await self._delivery("own", own=True),
            ),
        ]

    async def _delivery(self, topic: str, *, own: bool) -> Callable[[], Awaitable[None]]:
        await self._ask(post(f"/v0/topics/{topic}", b'{"durability":"disk"}', "PUT"))
        for number in range(WATCHERS):
            wish: dict[str, Any] = {"topics": {topic: {"tail": True}}}
            if own:
                wish["node"] = f"n{number}"
            await self._ask(post("/v0/watch", msgspec.json.encode(wish)))
            told = msgspec.json.decode(self._clients[0].body)
            Client(self._app, Pieces(self._pieces)).send(
                f"GET {told['stream_url']} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Accept: text/event-stream\r\n\r\n".encode()
            )
        writes = [
            post(f"/v0/topics/{topic}", b'{"records":[{"data":{"value":12.5},"node":"n%d"}]}' % number)
            for number in range(WATCHERS)
        ]
        # Until the streams have told where they stand.
        for _ in range(100):
            await asyncio.sleep(0)
        at = 0

        async def deliver() -> None:
            nonlocal at
            at += 1
            delivered = self._pieces.expect(WATCHERS - 1 if own else WATCHERS)
            await self._ask(writes[at % WATCHERS])
            await delivered

        return deliver


def mark() -> None:
    os.getsid(0)


async def calm(app: Application) -> None:
    """Until no reader is protected any more, and the loop is in time.

    For two seconds after a read, writers are asked whether they have to make way for it, and what they write
    may go by way of a thread. A quick machine would count before that is over, and a slow one behind it.
    """
    while app.node.scheduler.active or app.node.load_shedder.level > Level.CALM:  # noqa: ASYNC110
        await asyncio.sleep(SAMPLE_S)


async def run(steps: int, stretches: int, ready: Callable[[], None]) -> dict[str, int]:
    """How many records one stretch of each work was for; every stretch lies between two marks."""
    with tempfile.TemporaryDirectory(prefix="topics-count-") as directory:
        app = Application(Settings(data_dir=str(Path(directory) / "data"), port=0))
        app.server.bind()
        await app.recover()
        works = await Bench(app).works()
        for work in works:
            for _ in range(steps):
                await work.step()
        # The collector comes when it comes, and would be counted for whoever is there.
        gc.collect()
        gc.disable()
        ready()
        await calm(app)
        try:
            for work in works:
                for _ in range(stretches):
                    mark()
                    for _ in range(steps * work.times):
                        await work.step()
            mark()
        finally:
            gc.enable()
            await app.node.close()
        return {work.name: steps * work.times * work.records for work in works}


def wait_for_counting() -> None:
    """Whoever has started us switches the counting on: it would make the start slow."""
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    counted = uvloop.run(run(int(sys.argv[1]), int(sys.argv[2]), wait_for_counting))
    sys.stdout.buffer.write(msgspec.json.encode(counted) + b"\n")
