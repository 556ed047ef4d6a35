"""A real server in a thread, and a client that speaks in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from tests.support import eventually
from topics.http.auth import KeyRing
from topics.http.edge import Limits
from topics.http.gate import Gate
from topics.http.routing import Route
from topics.http.server import Server
from topics.values.settings import Settings

if TYPE_CHECKING:
    from tests.http.streaming import RunningApp


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        envelope = self.json
        assert set(envelope) <= {"error", "performance"}
        assert set(envelope["error"]) <= {"code", "message", "detail"}
        assert envelope["error"]["message"]
        assert self.headers["content-type"] == "application/json"
        return envelope["error"]["code"]


class Wire:
    """One client connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        self.send(raw_request(method, target, body, headers))
        return self.read(head_only=method == "HEAD")

    def read_head(self) -> tuple[int, dict[str, str]]:
        line = self.file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers = {}
        while (header := self.file.readline()) != b"\r\n":
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split(b" ")[1]), headers

    def read(self, *, head_only: bool = False) -> Answer:
        status, headers = self.read_head()
        if head_only:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(iter(self.read_chunk, b"")))
        return Answer(status, headers, self.file.read(int(headers["content-length"])))

    def read_chunk(self) -> bytes:
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        assert self.file.readline() == b"\r\n"
        return data

    def at_end(self) -> bool:
        """True when the server has closed, with or without a reset."""
        try:
            return self.file.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def raw_request(
    method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: test"]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
        if "Content-Type" not in (headers or {}):
            lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Running:
    """A server running in its own thread and loop."""

    def __init__(
        self, routes: list[Route], settings: Settings, keys: str, gate: Gate, limits: Limits
    ) -> None:
        self.keyring = KeyRing.parse(keys)
        self.gate = gate
        self.server: Server
        self._arguments = (settings, self.keyring, routes, gate)
        self._limits = limits
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._wires: list[Wire] = []
        self.thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)
        self.thread.start()
        self._started.wait(20)
        if self._failure is not None:
            raise self._failure

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.server = Server(*self._arguments, limits=self._limits, drain_s=2.0)
        try:
            await self.server.start()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._started.set()
        await self._stop.wait()
        await self.server.stop()

    @property
    def address(self) -> tuple[str, int]:
        return self.server.address

    def connect(self) -> Wire:
        wire = Wire(self.address)
        self._wires.append(wire)
        return wire

    def request(self, method: str, target: str, *args: Any, **kwargs: Any) -> Answer:
        with contextlib.closing(self.connect()) as wire:
            return wire.request(method, target, *args, **kwargs)

    def inflight(self) -> int:
        return sum(key.inflight for key in self.keyring.keys)

    def begin_stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        for wire in self._wires:
            wire.close()
        if self.thread.is_alive():
            self.begin_stop()
            self.thread.join(20)
        assert not self.thread.is_alive()


Serve = Callable[..., Running]


@pytest.fixture
def loop_errors() -> Iterator[list[str]]:
    """What the event loop complains about: exceptions that escaped from our callbacks."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(self.format(record))

    collector = Collector(logging.WARNING)
    logging.getLogger("asyncio").addHandler(collector)
    yield messages
    logging.getLogger("asyncio").removeHandler(collector)


@pytest.fixture
def serve(loop_errors: list[str]) -> Iterator[Serve]:
    """`serve(routes, keys=…, limits=…, gate=…, **settings)` starts a server that ends with the test."""
    servers: list[Running] = []

    def start(
        routes: list[Route],
        *,
        keys: str = "",
        limits: Limits | None = None,
        gate: Gate | None = None,
        **settings: Any,
    ) -> Running:
        if gate is None:
            gate = Gate()
            gate.admit()
        running = Running(routes, Settings(port=0, **settings), keys, gate, limits or Limits())
        servers.append(running)
        return running

    yield start
    for running in servers:
        running.stop()
        assert not running.server.edge.connections
        assert not running.server.edge.streams
        assert running.inflight() == 0
    assert not loop_errors


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return partial(eventually, within_s=5.0)


@pytest.fixture
def raw() -> Callable[..., bytes]:
    return raw_request


@pytest.fixture
def start(tmp_path: Path, loop_errors: list[str]) -> Iterator[Callable[..., RunningApp]]:
    """`start(clock=…, **settings)` runs the whole application; it ends with the test."""
    from tests.http.streaming import RunningApp  # which is built on this module

    apps: list[RunningApp] = []

    def begin(**settings: Any) -> RunningApp:
        apps.append(RunningApp(tmp_path / f"data-{len(apps)}", **settings))
        return apps[-1]

    yield begin
    for app in apps:
        app.stop()
    assert not loop_errors
