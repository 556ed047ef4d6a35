"""A connection on which a client speaks HTTP in bytes."""

from __future__ import annotations

import socket

from tests.support.answers import Answer

PATIENCE_S = 20.0
# For clients whose kernel is to take as little as possible on their behalf.
LEAST_RECEIVED = 4096


def connect(
    address: tuple[str, int], *, patience_s: float = PATIENCE_S, receive_bytes: int | None = None
) -> socket.socket:
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(patience_s)
    connection.connect(address)
    return connection


class Wire:
    """One client connection."""

    def __init__(
        self, address: tuple[str, int], *, patience_s: float = PATIENCE_S, receive_bytes: int | None = None
    ) -> None:
        self.socket = connect(address, patience_s=patience_s, receive_bytes=receive_bytes)
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        self.send(raw_request(method, target, body, headers))
        return self.read(head_only=method == "HEAD")

    def read_head(self) -> tuple[int, dict[str, str]]:
        line = self.file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers = {}
        while (header := self.file.readline()) != b"\r\n":
            assert header, "the connection ended inside a head"
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split(b" ")[1]), headers

    def read(self, *, head_only: bool = False) -> Answer:
        status, headers = self.read_head()
        if head_only:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(iter(self.read_chunk, b"")))
        return Answer(status, headers, self.file.read(int(headers["content-length"])))

    def read_chunk(self) -> bytes:
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        assert self.file.readline() == b"\r\n"
        return data

    def at_end(self) -> bool:
        """True when the server has closed, with or without a reset."""
        try:
            return self.file.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def raw_request(
    method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
        if "Content-Type" not in (headers or {}):
            lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")
