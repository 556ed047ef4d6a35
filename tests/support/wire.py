"""A connection on which a client speaks HTTP in bytes, and the answers of servers."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

PATIENCE_S = 20.0
# For clients whose kernel should buffer as little as possible.
LEAST_RECEIVED = 4096


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @classmethod
    def read(cls, connection: http.client.HTTPConnection) -> Answer:
        """Read the answer to the last request of a connection."""
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return cls(response.status, headers, response.read())

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Return the error code, after a check of the whole error."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) <= {"error", "performance"}
        error = self.json["error"]
        assert set(error) <= {"code", "message", "detail"}
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error.get("detail", {}), dict)
        code: str = error["code"]
        return code

    def ok(self, status: int = 200) -> Any:
        """Return the body of a success, which has no wrapper and no error, and is always timed."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.headers["content-type"].startswith("application/json")
        body = self.json
        assert not {"error", "ok"} & set(body)
        assert isinstance(body["performance"]["server_total_ms"], int | float)
        assert all(isinstance(value, int | float) for value in body["performance"].values())
        return body

    def refused(self, status: int, code: str) -> Any:
        """Return the detail of a refusal with this status and code."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.code == code, self.body[:500]
        if status in (429, 503):
            assert int(self.headers["retry-after"]) >= 0
        return self.json["error"].get("detail")


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
        """Return whether the server has closed the connection, with or without a reset."""
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
