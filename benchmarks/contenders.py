"""The servers that are measured: ours and Redis, as real processes, spoken to in prebuilt bytes."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis

from benchmarks.generator import Request, verify_range
from benchmarks.payloads import Shape
from tests.support import ServerProcess, free_port
from topics import codec, compiled

_CPUCLOCK_SCHED = 2
_TICKS = os.sysconf("SC_CLK_TCK")
# As without a compiler.
PYTHON_CODEC = {codec.SWITCH: "python", compiled.SWITCH: "0"}
# Larger than any request that loads data, small enough to be taken at once.
_FILL_BATCH = 1000


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, all threads, user and system; with that of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ended = sum(int(field) for field in fields[13:15]) / _TICKS
    # Its own is asked of its clock, as clock_getcpuclockid(3) names it: hundredths of a second are too coarse
    # for a server that does little.
    own = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return own + ended + sum(_of_child(int(child)) for child in children)


def _of_child(pid: int) -> float:
    try:
        return cpu_seconds(pid)
    except OSError:
        return 0.0  # it has just ended


def cpu_of_children() -> float:
    """Processor time of processes that we have started and waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def wake_ups(pid: int) -> int:
    """How often a process has waited for something so far, and gone on: all threads that it has now."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def http_request(
    target: str,
    body: bytes,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Request:
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{more}\r\n"
    )
    return Request(head.encode() + body)


class Topics:
    """A `topics serve` process of its own."""

    protocol = "http"

    def __init__(self, directory: Path, program: Path | None = None, /, **environment: str) -> None:
        """`program`: the command `topics` of another checkout."""
        directory.mkdir()
        self.server = ServerProcess(directory, **environment)
        if program is not None:
            self.server.command = (str(program), "serve")
        self.server.start()
        self.port = self.server.host_and_port[1]
        self.pid = self.server.pid

    def put(self, path: str, body: object) -> None:
        answer = self.server.request("PUT", path, body)
        assert answer.status < 300, answer.text

    def create(self, names: Sequence[str], durability: str) -> None:
        for name in names:
            self.put(f"/v0/topics/{name}", {"durability": durability})

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.server.request("DELETE", f"/v0/topics/{name}")

    def fill(self, name: str, shape: Shape, count: int) -> None:
        """Records 1 to `count`; those the shape wants deleted carry a tag to delete them by."""
        every = shape.deleted_every
        with self.connection() as send:
            for first in range(1, count + 1, _FILL_BATCH):
                batch = [shape.record(n) for n in range(first, min(first + _FILL_BATCH, count + 1))]
                for record in batch[every - 1 :: every] if every else ():
                    record["tag"] = "gone"
                send(http_request(f"/v0/topics/{name}", shape.text({"records": batch})))
        if every:
            answer = self.server.post(f"/v0/topics/{name}/delete", {"match": "gone"})
            assert answer["deleted"] == count // every, answer

    def write(self, name: str, shape: Shape, numbers: Sequence[int]) -> Request:
        return http_request(f"/v0/topics/{name}", shape.body(numbers))

    def read(self, name: str, after: int, limit: int, shape: Shape) -> Request:
        return http_request(f"/v0/topics/{name}/diff", b'{"from_seq":%d,"limit":%d}' % (after, limit))

    def journal(self) -> dict[str, int]:
        """What the journal has done so far, as the metrics tell it."""
        answer = self.server.request("GET", "/v0/metrics", headers={"Accept": "application/json"})
        counted: dict[str, int] = answer.json["wal"]
        return counted

    @contextmanager
    def connection(self) -> Iterator[Sender]:
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Sender(sock)

    def close(self) -> None:
        self.server.stop()


class Sender:
    """One request, one whole reply, over a connection that is kept: a client that costs little."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb", buffering=1024 * 1024)

    def __call__(self, request: Request) -> bytes:
        self._sock.sendall(request.data)
        status = self._stream.readline()
        length: int | None = 0
        while (line := self._stream.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"transfer-encoding":
                length = None
        body = self._chunks() if length is None else self._stream.read(length)
        if not status.startswith(b"HTTP/1.1 20"):
            raise Refused(int(status.split()[1]), body)
        return body

    def _chunks(self) -> bytes:
        pieces = []
        while size := int(self._stream.readline(), 16):
            pieces.append(self._stream.read(size))
            self._stream.readline()
        self._stream.readline()
        return b"".join(pieces)


class Refused(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:300].decode(errors='replace')}")
        self.status = status


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Redis:
    """A `redis-server` that appends to its file and syncs it every second, or before every answer."""

    protocol = "redis"

    def __init__(self, directory: Path, appendfsync: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError(
                "redis-server is not installed: `make bench` installs it, or use your packager"
            )
        directory.mkdir()
        self.label = f"Redis {appendfsync}"
        self.port = free_port()
        # Rewriting its file in between would be Redis's business, not the benchmark's.
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(directory),
            "appendonly": "yes",
            "appendfsync": appendfsync,
            "auto-aof-rewrite-percentage": "0",
            "save": "",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        with (directory / "redis.log").open("wb") as log:
            self._process = subprocess.Popen([program, *arguments], stdout=log)
        self.pid = self._process.pid
        self.control = redis.Redis(port=self.port, socket_timeout=60)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                self.control.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def drop(self, names: Sequence[str]) -> None:
        self.control.unlink(*names)

    def fill(self, name: str, shape: Shape, count: int) -> None:
        """The same records as ours, and the same ones deleted."""
        for first in range(1, count + 1, _FILL_BATCH):
            pipeline = self.control.pipeline(transaction=False)
            for n in range(first, min(first + _FILL_BATCH, count + 1)):
                # Ids that tell the number, so that deleting and paging need no lookup.
                fields = iter(shape.fields(n))
                pipeline.xadd(name, dict(zip(fields, fields, strict=True)), id=_entry_id(n))
            pipeline.execute()
        if shape.deleted_every:
            gone = range(shape.deleted_every, count + 1, shape.deleted_every)
            for at in range(0, len(gone), _FILL_BATCH):
                self.control.xdel(name, *(_entry_id(n) for n in gone[at : at + _FILL_BATCH]))

    def write(self, name: str, shape: Shape, numbers: Sequence[int]) -> Request:
        """One XADD a record, all of them sent at once; each answers with two lines."""
        commands = [command(b"XADD", name.encode(), b"*", *shape.fields(n)) for n in numbers]
        return Request(b"".join(commands), reply_lines=2 * len(commands))

    def read(self, name: str, after: int, limit: int, shape: Shape) -> Request:
        """A stretch that does not change has one reply, whose length we learn, and verify, beforehand."""
        start = b"(" + _entry_id(after).encode()
        data = command(b"XRANGE", name.encode(), start, b"+", b"COUNT", b"%d" % limit)
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.sendall(data)
            reply = b""
            while reply.count(b"\n") < 1 or reply.count(b"\n") < 1 + _entries(reply) * self.lines_of(shape):
                reply += sock.recv(1024 * 1024)
        assert verify_range(reply, self.lines_of(shape)) == limit
        return Request(data, reply_bytes=len(reply))

    @staticmethod
    def lines_of(shape: Shape) -> int:
        """Of one entry: its array head, its id, the head of its fields, then four for each field."""
        return 4 + 2 * len(shape.fields(0))

    def close(self) -> None:
        self.control.close()
        self._process.terminate()
        self._process.wait(20)


def _entries(reply: bytes) -> int:
    return int(reply[1 : reply.index(b"\r")])


def _entry_id(n: int) -> str:
    return f"{1_700_000_000_000 + n}-0"
