"""Many watchers of one topic, and its one writer, in a process of their own.

Reads a `WatchJob` from standard input, connects, then runs once for each line (seconds to run) and answers
each with a `WatchTally` as a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection

import msgspec

_BUFFER_BYTES = 256 * 1024
_MARK = b'"$seq":'
_STAMP = b'"stamp":'
# Sockets are emptied this often when only the number of records matters: one call then takes several events.
_SWEEP_S = 0.01
# When they are timed, one of so many is.
_TIMED_OF = 10


class WatchJob(msgspec.Struct):
    port: int
    # Where the writer writes; they watch it as well, unless they watch another one.
    topic: str
    watchers: int
    # 0: the next write is sent when the last one was answered.
    writes_per_s: float = 0.0
    # Every watcher has a node, writes in turn with the others, and leaves out what it wrote.
    own_nodes: bool = False
    watched: str = ""


class WatchTally(msgspec.Struct):
    seconds: float
    writes: int
    deliveries: int
    # From the writer's send to a watcher's receive, in milliseconds; only of a paced run.
    latencies_ms: list[float] = msgspec.field(default_factory=list)


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _ask(port: int, target: str, body: object) -> dict[str, object]:
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", target, json.dumps(body), {"Content-Type": "application/json"})
        answer: dict[str, object] = json.load(connection.getresponse())
        return answer
    finally:
        connection.close()


def _post(target: str, data: bytes) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data


class Watchers:
    def __init__(self, job: WatchJob) -> None:
        self._job = job
        self._writer = _connect(job.port)
        self._writer.setblocking(False)
        self._sockets = [self._watch(number) for number in range(job.watchers)]
        time.sleep(0.3)
        for sock in self._sockets:
            sock.setblocking(False)
        self._take_all(self._sockets)

    def _watch(self, number: int) -> socket.socket:
        wish: dict[str, object] = {"topics": {self._job.watched or self._job.topic: {"tail": True}}}
        if self._job.own_nodes:
            wish["node"] = f"n{number}"
        session = _ask(self._job.port, "/v0/watch", wish)
        sock = _connect(self._job.port)
        head = f"GET {session['stream_url']} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        sock.sendall(head.encode())
        return sock

    def _take_all(self, sockets: Sequence[socket.socket]) -> int:
        return sum(self._take(sock).count(_MARK) for sock in sockets)

    @staticmethod
    def _take(sock: socket.socket) -> bytes:
        try:
            return sock.recv(_BUFFER_BYTES)
        except BlockingIOError:
            return b""

    def _writes(self) -> list[bytes]:
        """One, or that of each node."""
        nodes = [b',"node":"n%d"' % n for n in range(self._job.watchers)] if self._job.own_nodes else [b""]
        record = b'{"records":[{"data":{"value":12.5,"event":"tick"}%b}]}'
        return [_post(f"/v0/topics/{self._job.topic}", record % node) for node in nodes]

    def flood(self, seconds: float) -> WatchTally:
        """As many writes as are answered one after the other; what counts is what the watchers get."""
        requests = itertools.cycle(self._writes())
        poll = select.epoll()
        poll.register(self._writer.fileno(), select.EPOLLIN)
        writes = deliveries = 0
        started = swept = time.perf_counter()
        self._writer.send(next(requests))
        while (now := time.perf_counter()) - started < seconds:
            if poll.poll(_SWEEP_S / 4):
                self._writer.recv(_BUFFER_BYTES)
                writes += 1
                self._writer.send(next(requests))
            if now - swept >= _SWEEP_S:
                deliveries += self._take_all(self._sockets)
                swept = now
        elapsed = time.perf_counter() - started
        deliveries += self._take_all(self._sockets)
        poll.poll(5)
        self._writer.recv(_BUFFER_BYTES)
        poll.close()
        time.sleep(0.3)
        self._take_all(self._sockets)
        return WatchTally(elapsed, writes, deliveries)

    def paced(self, seconds: float) -> WatchTally:
        """So many writes a second, each stamped; the receives of some watchers are timed.

        Timing them all would take more of a processor than serving them does, and measure that.
        """
        timed, others = self._sockets[::_TIMED_OF], [s for i, s in enumerate(self._sockets) if i % _TIMED_OF]
        by_fd = {sock.fileno(): sock for sock in (self._writer, *timed)}
        poll = select.epoll()
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        target = f"/v0/topics/{self._job.topic}"
        latencies: list[float] = []
        started = swept = time.perf_counter()
        writes = deliveries = 0
        for number in itertools.count():
            due = started + number / self._job.writes_per_s
            while (left := due - time.perf_counter()) > 0:
                self._time_arrivals(poll.poll(left), by_fd, latencies)
            if due - started >= seconds:
                break
            body = b'{"records":[{"data":{%b%d}}]}' % (_STAMP, time.perf_counter_ns())
            self._writer.send(_post(target, body))
            writes += 1
            if due - swept >= _SWEEP_S:
                deliveries += self._take_all(others)
                swept = due
        deadline = time.perf_counter() + 2
        while len(latencies) + deliveries < writes * len(self._sockets) and time.perf_counter() < deadline:
            self._time_arrivals(poll.poll(0.1), by_fd, latencies)
            deliveries += self._take_all(others)
        poll.close()
        return WatchTally(time.perf_counter() - started, writes, deliveries + len(latencies), latencies)

    def _time_arrivals(
        self, ready: list[tuple[int, int]], by_fd: dict[int, socket.socket], latencies: list[float]
    ) -> None:
        for fd, _ in ready:
            data = self._take(by_fd[fd])
            now = time.perf_counter_ns()
            if fd != self._writer.fileno():
                latencies += [(now - int(part.partition(b"}")[0])) / 1e6 for part in data.split(_STAMP)[1:]]


def main() -> None:
    watchers = Watchers(msgspec.json.decode(sys.stdin.buffer.readline(), type=WatchJob))
    paced = watchers._job.writes_per_s > 0
    print("{}", flush=True)
    for line in sys.stdin.buffer:
        tally = (watchers.paced if paced else watchers.flood)(float(line))
        sys.stdout.buffer.write(msgspec.json.encode(tally) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
