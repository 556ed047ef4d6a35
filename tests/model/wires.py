"""Many connections of one client, spoken to byte by byte."""

from __future__ import annotations

import json
import selectors
import socket
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 60.0


@dataclass
class Write:
    """One request. `data`: of its records; None if it has to be refused."""

    name: str
    body: bytes
    data: list[str] | None
    key: str | None = None
    status: int = 0
    answer: Any = None

    @property
    def is_written(self) -> bool:
        return self.status in (200, 201)

    def text(self) -> bytes:
        key = b"" if self.key is None else b"\r\nIdempotency-Key: %b" % self.key.encode()
        return request("POST", f"/v0/topics/{self.name}", self.body, key)


def request(method: str, path: str, body: bytes = b"", more: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: topics.test\r\nContent-Type: application/json"
    return head.encode() + more + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Wires:
    """Connections, each of which waits for so many answers."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._sockets = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(count)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, at: int, data: bytes) -> None:
        self._sockets[at].sendall(data)

    def answers(self, wanted: dict[int, int]) -> dict[int, list[tuple[int, Any]]]:
        """What each of these has got; a connection that was closed has fewer."""
        got: dict[int, bytes] = dict.fromkeys(wanted, b"")
        found: dict[int, list[tuple[int, Any]]] = {at: [] for at in wanted}
        with selectors.DefaultSelector() as selector:
            for at in wanted:
                selector.register(self._sockets[at], selectors.EVENT_READ, at)
            while selector.get_map():
                ready = selector.select(PATIENCE_S)
                assert ready, f"somebody waits in vain: {[key.data for key in selector.get_map().values()]}"
                for key, _ in ready:
                    at = key.data
                    try:
                        piece = self._sockets[at].recv(1 << 20)
                    except ConnectionResetError:
                        piece = b""
                    got[at] = take_answers(got[at] + piece, found[at])
                    if not piece or len(found[at]) >= wanted[at]:
                        selector.unregister(self._sockets[at])
        return found

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def take_answers(data: bytes, found: list[tuple[int, Any]]) -> bytes:
    """Puts those that are complete to the others; returns the rest."""
    while (end := data.find(b"\r\n\r\n")) >= 0:
        head = data[:end].lower()
        at = head.index(b"content-length:") + 15
        stop = end + 4 + int(head[at:].split(b"\r\n")[0])
        if len(data) < stop:
            break
        found.append((int(head.split(b" ")[1]), json.loads(data[end + 4 : stop])))
        data = data[stop:]
    return data
