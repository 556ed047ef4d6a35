"""Connections opened and abandoned, many a second, while an ordinary client goes on asking.

    python -m tests.fuzz.churn --per-second 1000 --seconds 60

Some leave at once, some after half a head, half a body or a whole request, with or without a reset. Meanwhile
one client writes and reads; how long it waits is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import uvloop

from tests.fuzz import corpus
from tests.fuzz.observe import Observed
from tests.support import ServerProcess

_RESET = struct.pack("ii", 1, 0)
# The last ones are abandoned without a word of goodbye for a while, as a machine that lost its network would.
_HALF_OPEN_S = 2.0


class Churn:
    def __init__(self, address: tuple[str, int], *, per_second: int, seed: int) -> None:
        self._address = address
        self._per_second = per_second
        self._random = Random(seed)
        self._requests = corpus.requests()
        self.opened = 0
        self.failed = 0

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        started, tasks = loop.time(), set()
        while (elapsed := loop.time() - started) < seconds:
            while self.opened + self.failed < elapsed * self._per_second:
                task = loop.create_task(self._one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                # Counted when it begins; the connection may still fail.
                self.opened += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)

    async def _one(self) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, self._address)
            kind = self._random.random()
            request = self._random.choice(self._requests)
            if kind < 0.4:
                await loop.sock_sendall(sock, request[: self._random.randrange(len(request) + 1)])
            elif kind < 0.6:
                await loop.sock_sendall(sock, request)
            if kind > 0.9:
                await asyncio.sleep(_HALF_OPEN_S)
            if self._random.random() < 0.5:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            self.failed += 1
        finally:
            sock.close()


async def ordinary(address: tuple[str, int], until: asyncio.Event) -> list[float]:
    """Writes and reads, one after the other, every few milliseconds, on one connection."""
    write = corpus.request("POST", "/v0/topics/ordinary", b'{"records":[{"data":1}]}')
    read = corpus.request("POST", "/v0/topics/ordinary/diff", b'{"from_seq":0,"limit":10}')
    taken: list[float] = []
    reader, writer = await asyncio.open_connection(*address)
    while not until.is_set():
        for request in (write, read):
            started = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 20"), head
            length = int(head.partition(b"Content-Length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            taken.append(time.perf_counter() - started)
        await asyncio.sleep(0.005)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return taken


async def measure(address: tuple[str, int], per_second: int, seconds: float, seed: int) -> dict[str, object]:
    alone = asyncio.Event()
    asyncio.get_running_loop().call_later(min(seconds, 5.0), alone.set)
    idle = await ordinary(address, alone)
    over = asyncio.Event()
    client = asyncio.create_task(ordinary(address, over))
    churn = Churn(address, per_second=per_second, seed=seed)
    await churn.run(seconds)
    over.set()
    return {
        "opened": churn.opened,
        "failed": churn.failed,
        "idle_ms": shares(idle),
        "churn_ms": shares(await client),
    }


def shares(taken: list[float]) -> dict[str, float]:
    ranked = sorted(taken)
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = {name: ranked[min(int(len(ranked) * share), len(ranked) - 1)] for name, share in named.items()}
    return {"requests": len(taken)} | {name: round(value * 1000, 2) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.churn", description=__doc__)
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-churn-") as directory:
        server = ServerProcess(Path(directory), TOPICS_API_KEYS=corpus.TOKEN).start()
        try:
            observed = Observed(server.pid, server.log_file)
            before = observed.sockets()
            run = measure(server.host_and_port, arguments.per_second, arguments.seconds, arguments.seed)
            report = uvloop.run(run)
            # One that asked whether the server is ready may still have been open before.
            report["sockets_left"] = max(observed.settle(before) - before, 0)
            report["complaints"] = observed.complaints()[:10]
        finally:
            server.stop()
    print(json.dumps(report, indent=2))
    return 1 if report["complaints"] or report["sockets_left"] else 0


if __name__ == "__main__":
    sys.exit(main())
