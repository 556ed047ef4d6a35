"""Sends malformed requests over many connections, and looks only at how the answers begin."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections import Counter
from random import Random

from tests.fuzz.malformed import Malformed

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_PATIENCE_S = 40.0


class Attack:
    def __init__(self, address: tuple[str, int], *, seed: int, connections: int = 24) -> None:
        self._address = address
        self._random = Random(seed)
        self._malformed = Malformed(Random(seed + 1))
        self._connections = connections
        self._left = 0
        self.statuses: Counter[int] = Counter()
        self.attempts = 0
        # What was sent and got a 5xx, or no end.
        self.offences: list[bytes] = []

    async def run(self, attempts: int) -> None:
        self._left = attempts
        await asyncio.gather(*(self._client() for _ in range(self._connections)))

    async def _client(self) -> None:
        while self._left > 0:
            self._left -= 1
            data = self._malformed.attempt()
            self.attempts += 1
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    answer = await self._send(data)
            except TimeoutError:
                self.offences.append(b"no end: " + data)
                continue
            # Bodies may hold anything, but we never write records that look like a status line.
            statuses = [int(status) for status in _STATUS.findall(answer)]
            self.statuses.update(statuses)
            if any(status >= 500 for status in statuses):
                self.offences.append(data)

    async def _send(self, data: bytes) -> bytes:
        """In one piece or several, to the end or not: clients leave in many ways."""
        reader, writer = await asyncio.open_connection(*self._address)
        ending = self._random.random()
        try:
            cuts = sorted(
                self._random.randrange(len(data)) for _ in range(self._random.choice([0, 0, 0, 1, 3]))
            )
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                writer.write(data[start:end])
                await writer.drain()
                await asyncio.sleep(0)
            if ending < 0.05:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return b""
            if ending < 0.1:
                return b""
            writer.write_eof()
            return await reader.read(-1)
        except (ConnectionError, OSError):
            return b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
