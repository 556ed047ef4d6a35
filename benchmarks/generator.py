"""The load generator: sends prebuilt requests over many sockets and knows where each reply ends.

A process of its own, so that it and the server have a core each. It reads a `Job` from standard input, then
a line per round (seconds to run), and answers each with a `Tally` as a line of JSON. Everything that can be
done before the clock starts is done by whoever builds the job.

A connection sends its next request when the reply to the last one is complete. In a job that verifies,
replies are also decoded in full and what they say is checked; otherwise their bytes are counted.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Callable
from itertools import cycle

import msgspec

from benchmarks.payloads import Payload

_BUFFER_BYTES = 1024 * 1024
_PATIENCE_S = 30
_LENGTH = b"Content-Length: "


class Request(msgspec.Struct, gc=False):
    data: bytes
    # How the end of the reply is known where the protocol does not say it up front: so many lines, or bytes.
    reply_lines: int = 0
    reply_bytes: int = 0


class Job(msgspec.Struct):
    port: int
    protocol: str
    # For each connection, the requests it cycles through.
    connections: list[list[Request]]
    verify: bool = False
    # Lines of one stream entry in a Redis reply.
    entry_lines: int = 0


class Tally(msgspec.Struct):
    replies: int
    seconds: float
    reply_bytes: int
    # Records that were decoded and found right.
    verified: int = 0
    # By the compiled generator: how long replies took, in a paced round how late they were: p50, p99, p99.9.
    late_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)


class WrongReply(Exception):
    pass


class _Record(msgspec.Struct, gc=False):
    data: Payload
    seq: int = msgspec.field(name="$seq")


class _Diff(msgspec.Struct, gc=False):
    records: list[_Record]
    next_from_seq: int


_diff = msgspec.json.Decoder(_Diff)
_payloads = msgspec.json.Decoder(list[Payload])


def verify_diff(reply: bytes, _: int) -> int:
    """Every record of a diff reply decoded: each payload has to be the one written under its seq."""
    page = _diff.decode(reply[reply.index(b"\r\n\r\n") + 4 :])
    seqs = [record.seq for record in page.records]
    if [record.data.n for record in page.records] != seqs or page.next_from_seq < seqs[-1]:
        raise WrongReply("a diff returned other records than were written")
    return len(seqs)


def verify_range(reply: bytes, entry_lines: int) -> int:
    """The same for XRANGE: its lines are regular, so entries are found by counting lines."""
    lines = reply.split(b"\r\n")
    count = int(lines[0][1:])
    texts = lines[entry_lines::entry_lines]
    numbers = [payload.n for payload in _payloads.decode(b"[" + b",".join(texts) + b"]")]
    if len(numbers) != count or numbers != sorted(set(numbers)):
        raise WrongReply("XRANGE returned other entries than were written")
    return count


class Connection:
    __slots__ = ("missing", "next_request", "reply", "request", "sock")

    def __init__(self, port: int, requests: list[Request]) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_request = cycle(requests).__next__
        self.request = requests[0]
        # Bytes or lines of the current reply still to come; 0 before its size is known.
        self.missing = 0
        self.reply = bytearray()

    def send(self) -> None:
        self.request = request = self.next_request()
        self.sock.sendall(request.data)


class Generator:
    def __init__(self, job: Job) -> None:
        self._connections = [Connection(job.port, requests) for requests in job.connections]
        self._by_fd = {connection.sock.fileno(): connection for connection in self._connections}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._keep = job.verify
        self._entry_lines = job.entry_lines
        self._verify: Callable[[bytes, int], int]
        self._is_complete: Callable[[Connection, int], bool]
        if job.protocol == "http":
            self._is_complete, self._verify = self._http_complete, verify_diff
        else:
            self._is_complete, self._verify = self._redis_complete, verify_range

    def run(self, seconds: float) -> Tally:
        for connection in self._connections:
            connection.send()
        started = time.perf_counter()
        tally = self._exchange(started + seconds)
        tally.seconds = time.perf_counter() - started
        self._collect_outstanding()
        return tally

    def _exchange(self, deadline: float) -> Tally:
        """Until the deadline, and for one reply at least: whoever has its reply sends the next request."""
        tally = Tally(0, 0.0, 0)
        poll, by_fd, buffer, is_complete = self._poll.poll, self._by_fd, self._buffer, self._is_complete
        replies = reply_bytes = 0
        while time.perf_counter() < deadline or not replies:
            if time.perf_counter() > deadline + _PATIENCE_S:
                raise WrongReply("no reply came")
            for fd, _ in poll(0.05):
                connection = by_fd[fd]
                size = connection.sock.recv_into(buffer)
                reply_bytes += size
                if is_complete(connection, size):
                    replies += 1
                    if self._keep:
                        tally.verified += self._checked(connection)
                    connection.send()
        tally.replies, tally.reply_bytes = replies, reply_bytes
        return tally

    def _checked(self, connection: Connection) -> int:
        reply, connection.reply = bytes(connection.reply), bytearray()
        return self._verify(reply, self._entry_lines)

    def _collect_outstanding(self) -> None:
        """What was asked before the deadline and answered after it belongs to no round."""
        waiting = set(self._by_fd)
        deadline = time.monotonic() + _PATIENCE_S
        while waiting:
            if time.monotonic() > deadline:
                raise WrongReply("a reply did not come")
            for fd, _ in self._poll.poll(1.0):
                connection = self._by_fd[fd]
                if self._is_complete(connection, connection.sock.recv_into(self._buffer)):
                    waiting.discard(fd)
                    connection.reply = bytearray()

    def _http_complete(self, connection: Connection, size: int) -> bool:
        buffer = self._buffer
        if self._keep:
            connection.reply += memoryview(buffer)[:size]
        if connection.missing:
            connection.missing -= size
            if not size:
                raise WrongReply("the connection was closed")
            return not connection.missing
        if not buffer.startswith(b"HTTP/1.1 20"):
            raise WrongReply(bytes(buffer[:size])[:300].decode(errors="replace"))
        head = buffer.find(b"\r\n\r\n", 0, size)
        at = buffer.find(_LENGTH, 0, head)
        if at < 0:
            raise WrongReply("a reply without its length, or with its head in pieces")
        missing = head + 4 + int(buffer[at + len(_LENGTH) : buffer.find(b"\r", at, head + 1)]) - size
        connection.missing = missing
        return not missing

    def _redis_complete(self, connection: Connection, size: int) -> bool:
        buffer, request = self._buffer, connection.request
        if self._keep:
            connection.reply += memoryview(buffer)[:size]
        if not connection.missing:
            if not buffer.startswith((b"$", b"*")):
                raise WrongReply(bytes(buffer[:size])[:300].decode(errors="replace"))
            connection.missing = request.reply_bytes or request.reply_lines
        connection.missing -= size if request.reply_bytes else buffer.count(b"\n", 0, size)
        if connection.missing < 0 or not size:
            raise WrongReply("a reply is longer than it should be, or its connection was closed")
        return not connection.missing


def main() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    job = msgspec.msgpack.decode(stdin.read(int(stdin.readline())), type=Job)
    generator = Generator(job)
    for line in stdin:
        stdout.write(msgspec.json.encode(generator.run(float(line))) + b"\n")
        stdout.flush()


if __name__ == "__main__":
    main()
