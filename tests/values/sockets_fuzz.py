"""Random traffic for the sockets of an accelerator: whatever happens, each byte arrives, and once."""

from __future__ import annotations

import random
import socket
import types
from typing import Any

KEY_LINE = b"\r\nIdempotency-Key: "
# Some of them are long enough to be found by how they begin.
_HOST = b"\r\nHost: " + b"h" * 64
HEADS = (
    b"POST /a HTTP/1.1\r\nContent-Length: 5",
    b"POST /a HTTP/1.1\r\nContent-Length: 5" + _HOST,
    b"POST /b HTTP/1.1\r\nContent-Length: 5",
    b"POST /b HTTP/1.1\r\nContent-Length: 5" + _HOST,
    b"POST /b HTTP/1.1\r\nContent-Length: 5" + _HOST[:-1] + b"i",
)


class Transport:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.closing = False
        self.waiting = 0
        self.written = b""

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.written += data


class Connection:
    __slots__ = (
        "_begun",
        "_behind",
        "_current",
        "_requests",
        "_unknown_heads",
        "_write_paused",
        "descriptor",
        "mode",
        "transport",
    )

    def __init__(self, transport: Transport, descriptor: int) -> None:
        self.transport = transport
        self.descriptor = descriptor
        self.mode = self._requests = 0
        self._unknown_heads = 7
        self._behind = self._begun = self._write_paused = False
        self._current: Any = None


class Known:
    __slots__ = ("body_bytes", "convoys", "key", "name")

    def __init__(
        self, body_bytes: Any = 4, name: str = "name", key: Any = None, convoys: Any = "convoys"
    ) -> None:
        self.body_bytes = body_bytes
        self.convoys = convoys
        self.key = key
        self.name = name


class Named:
    """A topic."""

    __slots__ = ("id", "name_json")

    def __init__(self, name: bytes = b"t", number: int = 7) -> None:
        self.id = number
        self.name_json = name


class Peer:
    """A connection, and the socket of its client."""

    def __init__(self, server: socket.socket | None = None, client: socket.socket | None = None) -> None:
        if server is None or client is None:
            server, client = socket.socketpair()
        self.server, self.client = server, client
        self.client.setblocking(False)
        self.transport = Transport(server)
        self.connection = Connection(self.transport, server.fileno())
        self.sent = self.came = b""

    def received(self) -> bytes:
        """All that the client has got."""
        got = b""
        while True:
            try:
                piece = self.client.recv(1 << 20)
            except BlockingIOError:
                return got
            if not piece:
                return got
            got += piece

    def close(self) -> None:
        self.server.close()
        self.client.close()


def drive(native: types.ModuleType, chance: random.Random, rounds: int) -> None:
    sockets: Any = native.Sockets(Connection, Known, Named)
    known = {head: Known(5, f"name {at}") for at, head in enumerate(HEADS)}
    # The same, and not all of it.
    fewer = dict(list(known.items())[:2])
    peers: dict[int, Peer] = {}
    for _ in range(rounds):
        if len(peers) < 20:
            new = Peer()
            peers[id(new.connection)] = new
            sockets.add(new.connection)
        for peer in chance.choices(list(peers.values()), k=5):
            _say(peer, chance)
        travelling, others, ended, _ = sockets.receive(chance.choice([known, known, known, fewer, None]))
        for _, (connections, bodies, keys) in travelling[0][1] if travelling else ():
            for at, (connection, body) in enumerate(zip(connections, bodies, strict=True)):
                head = next(head for head, one in known.items() if one is connection._current)
                line = b"" if keys is None else KEY_LINE + keys[at]
                peers[id(connection)].came += head + line + b"\r\n\r\n" + body
            _answer(sockets, connections, chance)
        for connection, data in others:
            peers[id(connection)].came += data
        for peer in peers.values():
            peer.received()
        gone = [
            *ended,
            *(peer.connection for peer in chance.choices(list(peers.values()), k=chance.randrange(2))),
        ]
        for connection in gone:
            leaving = peers.pop(id(connection), None)
            if leaving is not None:
                sockets.remove(connection)
                rest = (
                    leaving.server.recv(1 << 20, socket.MSG_DONTWAIT) if leaving.sent != leaving.came else b""
                )
                assert leaving.came + rest == leaving.sent
                leaving.close()
    sockets.close()
    for peer in peers.values():
        peer.close()


def _answer(sockets: Any, connections: list[Connection], chance: random.Random) -> None:
    head = b"HTTP/1.1 200\r\nContent-Length: "
    if chance.random() < 0.5:
        texts = [b"x" * chance.choice([0, 1, 300, 300_000]) for _ in connections]
        left = [connections[index] for index in sockets.answer(connections, texts, head)]
    else:
        name = Named(b"n" * chance.choice([1, 255, 1024]), chance.randrange(1 << 62))
        count, left, bodies = sockets.tell(
            [(name, connections, chance.randrange(1 << 62))], head, 1.5, 0.25, 0.0
        )
        assert len(left) == len(bodies) == len(connections) - count
    for connection in left:
        connection._current = None


def _say(peer: Peer, chance: random.Random) -> None:
    key = chance.choice([b"", b"", KEY_LINE + b"%d" % chance.randrange(1000), KEY_LINE + b" "])
    data = chance.choice(HEADS) + key + b"\r\n\r\n" + chance.randbytes(chance.choice([5, 5, 5, 4, 9]))
    if chance.random() < 0.2:
        data = data[: chance.randrange(1, len(data))] * chance.randrange(1, 3)
    try:
        sent = peer.client.send(data)
    except (BrokenPipeError, BlockingIOError):
        return
    peer.sent += data[:sent]
    if chance.random() < 0.02:
        peer.client.shutdown(socket.SHUT_WR)
