"""Servers that know nothing but the states of their topics: many of them, in one thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

State = dict[str, Any]


def state(name: str, head: int = 20, epoch: int = 7) -> State:
    return {"topic": name, "epoch": epoch, "head_seq": head, "earliest_seq": 1}


class Simulated:
    """One server: down while `is_down`, and taking every question without an answer while `is_mute`."""

    def __init__(self, *topics: State) -> None:
        self.topics = {one["topic"]: one for one in topics}
        self.is_down = self.is_mute = False
        # What it was asked.
        self.asked: list[str] = []
        self.url = ""

    def add(self, *topics: State) -> None:
        self.topics |= {one["topic"]: one for one in topics}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self.is_down:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ", 2)[1].decode()
                self.asked.append(target)
                if self.is_mute:
                    await asyncio.sleep(3600)
                if self.is_down:
                    return
                writer.write(self._answer(target))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, target: str) -> bytes:
        parts = urlsplit(target)
        if parts.path == "/v0/topics":
            return _response(200, self._page(parse_qs(parts.query)))
        name = unquote(parts.path.rpartition("/")[2])
        if name in self.topics:
            return _response(200, self.topics[name])
        return _response(404, {"error": {"code": "topic_not_found", "message": "no such topic"}})

    def _page(self, query: dict[str, list[str]]) -> State:
        size, after = int(query["page_size"][0]), query.get("cursor", [""])[0]
        names = sorted(name for name in self.topics if name > after)
        page: State = {"topics": [self.topics[name] for name in names[:size]]}
        return page | ({"next_cursor": names[size - 1]} if len(names) > size else {})


def _response(status: int, body: State) -> bytes:
    content = json.dumps(body).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content)


@contextmanager
def simulated(*servers: Simulated) -> Iterator[str]:
    """Their addresses as one `url`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> list[asyncio.Server]:
        return [await asyncio.start_server(one.serve, "127.0.0.1", 0) for one in servers]

    listening = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    for one, socket in zip(servers, listening, strict=True):
        one.url = f"http://127.0.0.1:{socket.sockets[0].getsockname()[1]}"
    try:
        yield ",".join(one.url for one in servers)
    finally:
        loop.call_soon_threadsafe(_end, loop, listening)
        thread.join(10)
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, listening: list[asyncio.Server]) -> None:
    for one in listening:
        one.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_later(0.05, loop.stop)
