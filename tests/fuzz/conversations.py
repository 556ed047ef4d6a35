"""Clients that stay for a while: event streams that are opened, read and left, and commands over WebSockets.

Most of what they say is right, so that it has an effect; the rest is wrong in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import struct
from collections import Counter
from random import Random
from typing import Any

from tests.fuzz import corpus

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_WID = re.compile(rb'"wid":"(wid_[A-Za-z0-9_-]+)"')
_PATIENCE_S = 40.0
# How long a stream is listened to after it has begun.
_LISTEN_S = 0.01
_WRONG: tuple[Any, ...] = (
    -1,
    2**64,
    1.5,
    None,
    True,
    "",
    "no/such",
    [],
    {},
    "x" * 300,
    [[[]]],
    {"from_seq": "1"},
)


class Conversations:
    def __init__(self, address: tuple[str, int], *, seed: int, connections: int = 12) -> None:
        self._address = address
        self._random = Random(seed)
        self._connections = connections
        self._left = 0
        self.statuses: Counter[int] = Counter()
        # What came over sockets, by the name of its kind; of errors, by their code.
        self.messages: Counter[str] = Counter()
        # Requests and commands.
        self.attempts = 0
        self.offences: list[bytes] = []

    async def run(self, attempts: int) -> None:
        self._left = self.attempts + attempts
        await asyncio.gather(*(self._client() for _ in range(self._connections)))

    async def _client(self) -> None:
        while self.attempts < self._left:
            talk = self._random.choice((self._watch, self._tail, self._work, self._socket, self._socket))
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await talk()
            except TimeoutError:
                self.offences.append(b"no end: " + talk.__name__.encode())
            except ConnectionRefusedError:
                raise  # nobody is there any more
            except (ConnectionError, asyncio.IncompleteReadError):
                pass  # the server may refuse what is wrong by leaving

    # --- event streams ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        wanted = {topic: self._start() for topic in self._random.sample(corpus.TOPICS, 2)}
        body = self._spoilt({"topics": wanted, "node": self._random.choice(["n1", ["n1", "n2"]])})
        answer = await self._ask(corpus.request("POST", "/v0/watch?lenient=true", json.dumps(body).encode()))
        wid = _WID.search(answer)
        if wid is not None:
            await self._listen(
                f"/v0/watch/{wid[1].decode()}", ("Last-Event-ID", self._random.choice(["", "x"]))
            )

    async def _tail(self) -> None:
        topic = self._random.choice(corpus.TOPICS)
        query = self._random.choice(["@0", "@-1&tag=a*", "@3&limit=2", "&node=n1", "&bogus=1", "@x"])
        await self._listen(f"/v0/tail?topic={topic}{query}")

    async def _work(self) -> None:
        query = self._random.choice(["node=n1&max=2&lease_ms=100", "node=n2", "node=&max=0", "max=x"])
        await self._listen(f"/v0/topics/{self._random.choice(corpus.TOPICS)}/work?{query}")

    def _start(self) -> dict[str, Any]:
        return self._random.choice([{}, {"tail": True}, {"from_seq": 3}, {"from_seq": 0, "epoch": 7}])

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(request)
            writer.write_eof()
            return self._judged(request, await reader.read(-1))
        finally:
            await self._leave(writer)

    async def _listen(self, target: str, *headers: tuple[str, str]) -> None:
        request = corpus.request("GET", target, None, *headers)
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(request)
            self._judged(request, await reader.read(65536))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LISTEN_S):
                    while await reader.read(65536):
                        pass
        finally:
            await self._leave(writer)

    def _judged(self, request: bytes, answer: bytes) -> bytes:
        self.attempts += 1
        statuses = [int(status) for status in _STATUS.findall(answer)]
        self.statuses.update(statuses)
        if not statuses or statuses[0] >= 500:
            self.offences.append(request + b" -> " + answer[:300])
        return answer

    # --- sockets ----------------------------------------------------------------------------------------

    async def _socket(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(corpus.upgrade())
            self._judged(corpus.upgrade(), await reader.readuntil(b"\r\n\r\n"))
            for number in range(self._random.randint(1, 30)):
                command = self._spoilt({**self._command(), "request_id": number})
                self.attempts += 1
                writer.write(text_frame(json.dumps(command).encode()))
                await writer.drain()
            # Answered last, and so all before it have been.
            writer.write(text_frame(b'{"op":"ping","request_id":"end"}'))
            while not self._heard(await read_text(reader)):
                pass
        finally:
            await self._leave(writer)

    def _command(self) -> dict[str, Any]:
        topic = self._random.choice(corpus.TOPICS)
        record = {"data": self._random.choice([1, None, "ü", {"a": [1]}]), "tag": "a:1", "node": "n1"}
        return self._random.choice(
            [
                {"op": "subscribe", "topic": topic, **self._start()},
                {"op": "subscribe", "topics": {topic: self._start(), "log": {}}, "lenient": True},
                {"op": "unsubscribe", "topic": topic},
                {"op": "unsubscribe", "topics": [topic, "log"]},
                {"op": "publish", "topic": topic, "records": [record] * self._random.randint(1, 5)},
                {"op": "publish", "topic": topic, "records": [{"data": 1}], "idempotency_key": "k"},
                {"op": "ping"},
            ]
        )

    def _heard(self, message: bytes) -> bool:
        """Whether it was the last."""
        said = json.loads(message)
        code = said.get("code")
        self.messages[code or said["op"]] += 1
        if code == "internal":
            self.offences.append(message[:300])
        return bool(said.get("request_id") == "end")

    # --- both -------------------------------------------------------------------------------------------

    def _spoilt(self, command: dict[str, Any]) -> dict[str, Any]:
        """One time in four, something in it is wrong."""
        if self._random.random() < 0.25:
            name = self._random.choice([*command, "bogus"])
            if name != "request_id":
                command[name] = self._random.choice(_WRONG)
        return command

    async def _leave(self, writer: asyncio.StreamWriter) -> None:
        if self._random.random() < 0.1:
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def text_frame(payload: bytes) -> bytes:
    """Masked with zeros, which leave it as it is."""
    if len(payload) < 126:
        return bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload
    return bytes([0x81, 0x80 | 126]) + struct.pack(">H", len(payload)) + bytes(4) + payload


async def read_text(reader: asyncio.StreamReader) -> bytes:
    """The next message; control frames are passed over."""
    while True:
        first, size = await reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack(">H", await reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await reader.readexactly(8))
        payload = await reader.readexactly(size)
        if first & 0x0F == 8:
            raise ConnectionResetError(payload)
        if first & 0x0F == 1:
            return payload
