"""While a server recovers: probes and metrics answer, data has to wait, and it says how far it is."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support import raw_request
from topics.core.settings import Settings
from topics.http.admission import readiness
from topics.http.app import Application, _ServerStopped
from topics.log.recover.recovery import Recovery


async def get(app: Application, path: str, accept: str = "*/*") -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection(*app.server.address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Recovery reports some progress, sets the first event, and waits for the second."""
    held, go_on = threading.Event(), threading.Event()
    original: Callable[[Recovery], Any] = Recovery.run

    def run(recovery: Recovery) -> Any:
        recovery._progress(0.25)
        held.set()
        assert go_on.wait(20)
        return original(recovery)

    monkeypatch.setattr(Recovery, "run", run)
    return held, go_on


async def watch_recovery(app: Application, held: threading.Event, go_on: threading.Event) -> None:
    await app.server.start()
    recovering = asyncio.create_task(app.recover())
    await asyncio.to_thread(held.wait, 20)

    status, headers, body = await get(app, "/v0/ready")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["detail"]) == (503, "not_ready", {"replay_progress": 0.25})
    assert int(headers["retry-after"]) >= 1
    assert (await get(app, "/v0/health"))[0] == 200
    assert (await get(app, "/v0/topics"))[0] == 503

    status, _, body = await get(app, "/v0/metrics")
    lines = body.decode().splitlines()
    assert status == 200
    assert "topics_ready 0" in lines
    assert "topics_recovery_progress 0.25" in lines
    assert "topics_topics 0" in lines
    assert 'topics_http_errors_total{code="not_ready"} 2' in lines
    figures = json.loads((await get(app, "/v0/metrics", "application/json"))[2])
    assert (figures["ready"], figures["replay_progress"]) == (False, 0.25)
    assert figures["series"]["topics_recovery_seconds"] > 0

    go_on.set()
    await recovering
    assert (await get(app, "/v0/ready"))[0] == 200
    assert b"\ntopics_recovery_progress 1\n" in (await get(app, "/v0/metrics"))[2]
    await app.server.stop()


def test_what_answers_while_recovering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, go_on = held_up(monkeypatch)

    async def main() -> None:
        app = Application(Settings(port=0, data_dir=str(tmp_path), allowed_hosts="*"))
        try:
            await watch_recovery(app, held, go_on)
        finally:
            go_on.set()

    uvloop.run(main())


# --- data requests that come too early ----------------------------------------------------------------------


def write(body: bytes = b'{"records":[{"data":1}]}') -> bytes:
    return raw_request("POST", "/v0/topics/t", body)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it does not come to that")


class Early:
    """A server that recovers until it is told to end that, and clients that do not wait for it."""

    def __init__(
        self, directory: Path, held: threading.Event, go_on: threading.Event, **settings: Any
    ) -> None:
        self.app = Application(Settings(port=0, data_dir=str(directory), allowed_hosts="*", **settings))
        self._held = held
        self._go_on = go_on
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Early:
        await self.app.server.start()
        self._recovering = asyncio.create_task(self.app.recover())
        await asyncio.to_thread(self._held.wait, 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end_recovery()
        await self.app.server.stop()
        for writer in self._writers:
            writer.close()

    async def end_recovery(self) -> None:
        self._go_on.set()
        await self._recovering

    def forget_recovery(self) -> None:
        self._recovering = asyncio.create_task(asyncio.sleep(0))

    async def send(self, *requests: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*self.app.server.address)
        self._writers.append(writer)
        writer.write(b"".join(requests))
        return reader

    def vanish(self) -> None:
        """A reset, and not an end: a client that has only said its last word may still listen."""
        for writer in self._writers:
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            writer.transport.abort()

    @property
    def waiting(self) -> int:
        return len(self.app.readiness._held)

    async def wait_for(self, waiting: int) -> None:
        await until(lambda: self.waiting == waiting)


async def status(reader: asyncio.StreamReader) -> int:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = re.search(rb"content-length: (\d+)", head.lower())
    assert length is not None
    await reader.readexactly(int(length[1]))
    return int(head.split(b" ")[1])


@pytest.fixture
def early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Early]:
    held, go_on = held_up(monkeypatch)
    return partial(Early, tmp_path, held, go_on)


def test_a_request_that_comes_early_is_answered_when_recovery_is_over(early: Callable[..., Early]) -> None:
    async def main() -> None:
        async with early() as server:
            reader = await server.send(write(), write())
            other = await server.send(raw_request("GET", "/v0/topics"))
            await server.wait_for(2)
            await server.end_recovery()
            assert [await status(reader), await status(reader)] == [201, 200]
            assert await status(other) == 200
            assert server.waiting == 0

    uvloop.run(main())


def test_after_a_while_it_is_refused(early: Callable[..., Early], monkeypatch: pytest.MonkeyPatch) -> None:
    assert readiness.HOLD_S == 2.0
    monkeypatch.setattr(readiness, "HOLD_S", 0.05)

    async def main() -> None:
        async with early() as server:
            reader = await server.send(write(), write())
            # The second one waits for its turn first, and then as long.
            assert [await status(reader), await status(reader)] == [503, 503]
            assert server.waiting == 0

    uvloop.run(main())


def test_no_more_than_a_thousand_wait(early: Callable[..., Early], monkeypatch: pytest.MonkeyPatch) -> None:
    assert readiness.MOST_HELD == 1000
    monkeypatch.setattr(readiness, "MOST_HELD", 3)
    monkeypatch.setattr(readiness, "HOLD_S", 60.0)

    async def main() -> None:
        async with early() as server:
            for _ in range(3):
                await server.send(write())
            await server.wait_for(3)
            # At once: those that wait would do so for a minute.
            assert await status(await server.send(write())) == 503
            server.vanish()
            # Places of clients that have gone are free again.
            await until(lambda: all(exchange.answered for exchange in server.app.readiness._held))
            late = await server.send(write())
            await server.wait_for(1)
            await server.end_recovery()
            assert await status(late) == 201

    uvloop.run(main())


def test_bodies_that_wait_take_no_more_than_the_largest_one_may(
    early: Callable[..., Early], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "HOLD_S", 60.0)
    large = b'{"records":[{"data":"%b"}]}' % (b"x" * 700)

    async def main() -> None:
        async with early(max_body_bytes=1000) as server:
            first = await server.send(write(large))
            await server.wait_for(1)
            assert await status(await server.send(write(large))) == 503
            small = await server.send(write())
            await server.wait_for(2)
            await server.end_recovery()
            assert sorted([await status(first), await status(small)]) == [200, 201]

    uvloop.run(main())


def test_those_that_wait_when_the_server_stops_are_told(early: Callable[..., Early]) -> None:
    async def main() -> None:
        async with early() as server:
            reader = await server.send(write())
            await server.wait_for(1)
            server.app.readiness.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 503 " in head
            assert b"shutting_down" in await reader.read()
            with pytest.raises(_ServerStopped):
                await server.end_recovery()
            server.forget_recovery()

    uvloop.run(main())


def test_an_empty_directory_is_ready_when_it_can_be_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = held_up(monkeypatch)

    async def main() -> None:
        port_file = tmp_path / "port"
        settings = Settings(
            port=0, port_file=str(port_file), data_dir=str(tmp_path / "data"), allowed_hosts="*"
        )
        app = Application(settings)
        running = asyncio.create_task(app.run())
        await asyncio.to_thread(held.wait, 20)
        # The address is taken, so that it is known to be free; but there is nobody to talk to.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*app.server.address)
        assert not port_file.exists()
        go_on.set()
        await until(port_file.exists)
        assert (await get(app, "/v0/ready"))[0] == 200
        app.server.request_stop()
        await running

    uvloop.run(main())
