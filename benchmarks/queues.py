"""Queues: many workers that claim eight jobs, acknowledge them, and claim again."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import msgspec

from benchmarks.contenders import Topics, cpu_seconds, http_request
from benchmarks.figures import Figure, at_least, at_most, per_cpu_second
from benchmarks.session import Session

AREA = "queues"
_CLAIM = 8
_FILL = 1000
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"Content-Length: "
_KINDS: dict[str, dict[str, object]] = {
    "disk": {"durability": "disk"},
    "fsync": {"durability": "fsync"},
    "fsync, durable leases": {"durability": "fsync", "leases_durable": True},
}


class _Job(msgspec.Struct, gc=False):
    seq: int = msgspec.field(name="$seq")


class _Claimed(msgspec.Struct, gc=False):
    claimed: list[_Job]


_claimed = msgspec.json.Decoder(_Claimed)


class Worker:
    """One connection that is either waiting for jobs or for the answer to its acknowledgement."""

    def __init__(self, port: int, queue: str, name: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._target = f"/v0/topics/{queue}"
        self._name = name
        self._claim = http_request(f"{self._target}/claim", self._body({"max": _CLAIM})).data
        self._reply = b""
        self._held = 0

    def _body(self, fields: dict[str, object]) -> bytes:
        return msgspec.json.encode({"node": self._name, **fields})

    def claim(self) -> None:
        self.sock.sendall(self._claim)

    def readable(self) -> int:
        """Jobs that are done now; none of them is counted twice."""
        self._reply += self.sock.recv(64 * 1024)
        head = self._reply.find(_HEAD_END)
        if head < 0:
            return 0
        at = self._reply.index(_LENGTH) + len(_LENGTH)
        length = int(self._reply[at : self._reply.index(b"\r", at)])
        body = self._reply[head + 4 :]
        if len(body) < length:
            return 0
        self._reply = b""
        if self._held:
            done, self._held = self._held, 0
            self.claim()
            return done
        jobs = _claimed.decode(body).claimed
        self._held = len(jobs)
        if jobs:
            fields: dict[str, object] = {"seqs": [job.seq for job in jobs]}
            self.sock.sendall(http_request(f"{self._target}/ack", self._body(fields)).data)
        return 0


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        try:
            for kind, config in _KINDS.items():
                yield from _measure(session, server, kind, config)
        finally:
            server.close()


def _measure(session: Session, server: Topics, kind: str, config: dict[str, object]) -> Iterator[Figure]:
    session.say(f"  {session.sizes.workers} workers, {kind}")
    rates: list[float] = []
    syncs = jobs = 0
    cpu_s = 0.0
    for number in range(session.sizes.rounds):
        queue = f"jobs-{kind.replace(', ', '-').replace(' ', '-')}-{number}"
        server.put(f"/v0/topics/{queue}", {"type": "queue", **config})
        count = session.sizes.local_records // 4
        _fill(server, queue, count)
        before = server.journal()["fsyncs"]
        cpu_s -= cpu_seconds(server.pid)
        seconds = _work(server, queue, session.sizes.workers, count)
        cpu_s += cpu_seconds(server.pid)
        rates.append(count / seconds)
        syncs += server.journal()["fsyncs"] - before
        jobs += count
    yield Figure.of_rounds(
        AREA,
        f"jobs claimed ({_CLAIM} at a time) and acknowledged, {session.sizes.workers} workers, {kind}",
        rates,
        "jobs/s",
        bar=at_least(20_000),
        note=per_cpu_second(jobs / max(cpu_s, 0.01)),
    )
    if kind != "disk":
        yield Figure(
            AREA,
            f"syncs per acknowledgement of {_CLAIM} jobs, {kind}",
            syncs / jobs * _CLAIM,
            "syncs",
            bar=at_most(0.5),
        )


def _fill(server: Topics, queue: str, count: int) -> None:
    with server.connection() as send:
        for first in range(0, count, _FILL):
            records = [{"data": {"job": n}} for n in range(first, min(first + _FILL, count))]
            send(http_request(f"/v0/topics/{queue}", msgspec.json.encode({"records": records})))


def _work(server: Topics, queue: str, workers: int, jobs: int) -> float:
    """Seconds until every job is done."""
    by_fd = {}
    poll = select.epoll()
    for number in range(workers):
        worker = Worker(server.port, queue, f"worker-{number}")
        by_fd[worker.sock.fileno()] = worker
        poll.register(worker.sock.fileno(), select.EPOLLIN)
    started = time.perf_counter()
    for worker in by_fd.values():
        worker.claim()
    done = 0
    while done < jobs:
        ready = poll.poll(30)
        assert ready, f"nothing came for half a minute; {jobs - done} jobs are left"
        for fd, _ in ready:
            done += by_fd[fd].readable()
    elapsed = time.perf_counter() - started
    poll.close()
    for worker in by_fd.values():
        worker.sock.close()
    return elapsed
