"""The whole application in a thread, and clients that read event streams and speak WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, Pong, Request, TextMessage

from tests.http.running import TIMEOUT_S, InThread
from tests.support import Answer, Wire, raw_request
from tests.support.wire import LEAST_RECEIVED, connect
from topics.core.clock import Clock
from topics.core.settings import Settings
from topics.http.app import Application


class RunningApp(InThread):
    """A server to look into: `app` belongs to the loop of its thread, reach it through `inside`."""

    def __init__(self, directory: Path, clock: Clock | None = None, **settings: Any) -> None:
        settings.setdefault("allowed_hosts", "*")
        self._settings = Settings(port=0, data_dir=str(directory), **settings)
        self._clock = clock
        self._clients: list[Wire | EventReader | SocketClient] = []
        self.app: Application
        super().__init__()

    async def begin(self) -> None:
        self.app = Application(self._settings, clock=self._clock)
        await self.app.server.start()
        await self.app.recover()

    async def finish(self) -> None:
        await self.app.server.stop()

    def inside(self, action: Callable[[], Any]) -> Any:
        """Run something on the server's own loop."""

        async def call() -> Any:
            return action()

        return self.wait(call())

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    @property
    def address(self) -> tuple[str, int]:
        return self.app.server.address

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        with contextlib.closing(Wire(self.address)) as wire:
            return wire.request(method, path, data, headers)

    def write(self, topic: str, *values: Any, **fields: Any) -> Any:
        records = [v if isinstance(v, dict) and "data" in v else {"data": v} for v in values]
        answer = self.call("POST", f"/v0/topics/{topic}", {"records": records, **fields})
        assert answer.status in (200, 201), answer.body
        return answer.json

    def watch(self, topics: dict[str, Any] | str, query: str = "", **fields: Any) -> Any:
        body = {"topics": {topics: {}} if isinstance(topics, str) else topics, **fields}
        answer = self.call("POST", f"/v0/watch{query}", body)
        assert answer.status == 200, answer.body
        return answer.json

    def events(self, wid: str, query: str = "", **headers: str) -> EventReader:
        reader = EventReader(self.address, f"/v0/watch/{wid}{query}", headers)
        self._clients.append(reader)
        return reader

    def stream(self, topics: dict[str, Any] | str, **fields: Any) -> EventReader:
        return self.events(self.watch(topics, **fields)["wid"])

    def socket(self, **headers: str) -> SocketClient:
        client = SocketClient(self.address, headers)
        self._clients.append(client)
        return client

    def slow_socket(self) -> SocketClient:
        client = SocketClient(self.address, receive_bytes=LEAST_RECEIVED)
        self._clients.append(client)
        return client

    def wire(self) -> Wire:
        wire = Wire(self.address)
        self._clients.append(wire)
        return wire

    def slow_wire(self, path: str) -> Wire:
        """A client that has asked, and does not read."""
        wire = Wire(self.address, receive_bytes=LEAST_RECEIVED)
        self._clients.append(wire)
        wire.send(raw_request("GET", path))
        return wire

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()

    def footprint(self) -> dict[str, int]:
        """What connections may leave behind, counted."""

        def count() -> dict[str, int]:
            app = self.app
            return {
                "slots": app.service.streams.taken,
                "streams": len(app.service.streams.open),
                "feeds": len(app.node.fanout.topics),
                "listeners": sum(len(topic.listeners) for topic in app.node.engine.by_name.values()),
                "heartbeats": len(app.service.streams.heartbeats),
                "workers": len(app.node.queues.workers()),
                "parked": len(app.service.parked),
                "connections": len(app.server.context.streams),
                "tasks": len(asyncio.all_tasks(self.loop)),
                "descriptors": _open_sockets(),
            }

        found: dict[str, int] = self.inside(count)
        return found

    def footprint_since(self, before: dict[str, int]) -> dict[str, int]:
        """The same; sockets that others of this process have closed meanwhile do not count."""
        found = self.footprint()
        return {**found, "descriptors": max(found["descriptors"], before["descriptors"])}


def _open_sockets() -> int:
    """Of this process. Files come and go for other reasons."""
    found = 0
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(entry.path).startswith("socket:")
    return found


class Frame:
    def __init__(self, event: str, event_id: str | None, data: Any) -> None:
        self.event = event
        self.id = event_id
        self.data = data

    @property
    def cursors(self) -> Any:
        assert self.id is not None
        assert "=" not in self.id
        text = base64.urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)).decode()
        assert " " not in text
        return json.loads(text)

    @property
    def seqs(self) -> list[int]:
        return [record["$seq"] for record in self.data["records"]]

    def __repr__(self) -> str:
        return f"<{self.event} {self.data}>"


class EventReader:
    """One GET of an event stream."""

    def __init__(self, address: tuple[str, int], path: str, headers: dict[str, str] | None = None) -> None:
        self.wire = Wire(address)
        self.wire.send(raw_request("GET", path, None, headers))
        self.status, self.headers = self.wire.read_head()
        self._text = b""
        self.body = b""
        if self.status != 200:
            self.body = self.wire.file.read(int(self.headers["content-length"]))

    @property
    def refusal(self) -> Answer:
        return Answer(self.status, self.headers, self.body)

    def block(self) -> str | None:
        """The next block of lines, or None at the proper end of the stream."""
        while b"\n\n" not in self._text:
            chunk = self.wire.read_chunk()
            if not chunk:
                assert not self._text
                return None
            self._text += chunk
        block, _, self._text = self._text.partition(b"\n\n")
        return block.decode()

    def frame(self) -> Frame | None:
        """The next event; comments and the retry hint are passed over."""
        while True:
            block = self.block()
            if block is None:
                return None
            if block.startswith((":", "retry:")):
                continue
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            assert list(fields) in (["id", "event", "data"], ["event", "data"])
            return Frame(fields["event"], fields.get("id"), json.loads(fields["data"]))

    def next(self, event: str) -> Frame:
        frame = self.frame()
        assert frame is not None, f"the stream ended instead of {event}"
        assert frame.event == event, frame
        return frame

    def until(self, event: str) -> list[Frame]:
        """Everything up to and including the next frame of that kind."""
        frames: list[Frame] = []
        while not frames or frames[-1].event != event:
            frame = self.frame()
            assert frame is not None, frames
            frames.append(frame)
        return frames

    def rest(self) -> list[Frame]:
        """Everything that is left of a stream that ends."""
        return list(_until_none(self.frame))

    def close(self) -> None:
        self.wire.close()


def _until_none(read: Callable[[], Frame | None]) -> Iterator[Frame]:
    while (frame := read()) is not None:
        yield frame


class SocketClient:
    """A WebSocket client that knows no shortcuts."""

    def __init__(
        self,
        address: tuple[str, int],
        headers: dict[str, str] | None = None,
        receive_bytes: int | None = None,
    ) -> None:
        self.socket = connect(address, receive_bytes=receive_bytes)
        self.protocol = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self.send_event(Request(host="localhost", target="/v0/ws", extra_headers=extra))
        self._events: list[Any] = []
        assert isinstance(self.event(), AcceptConnection)
        self.close_code: int | None = None

    def send_event(self, event: Any) -> None:
        self.socket.sendall(self.protocol.send(event))

    def send(self, **message: Any) -> None:
        self.send_event(Message(data=json.dumps(message)))

    def send_text(self, text: str) -> None:
        self.send_event(Message(data=text))

    def event(self) -> Any:
        while not self._events:
            data = self.socket.recv(65536)
            self.protocol.receive_data(data or None)
            self._events += self.protocol.events()
        return self._events.pop(0)

    def read(self) -> Any:
        """The next message, or None once the server has said goodbye."""
        text = ""
        while True:
            event = self.event()
            if isinstance(event, CloseConnection):
                self.close_code = event.code
                return None
            if isinstance(event, Ping):
                self.send_event(event.response())
                continue
            if isinstance(event, Pong):
                continue
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                return json.loads(text)

    def ask(self, **message: Any) -> Any:
        self.send(**message)
        return self.read()

    def next(self, op: str) -> Any:
        message = self.read()
        assert message is not None
        assert message["op"] == op, message
        return message

    def close(self) -> None:
        self.socket.close()
