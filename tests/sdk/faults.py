"""Networks and servers that fail on demand: a proxy that swallows answers, a server that says its lines."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator


def _serve(handle: Callable[[socket.socket], None]) -> tuple[str, Callable[[], None]]:
    """Each connection on a thread of its own; the address, and what ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()

    def stop() -> None:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    return f"http://127.0.0.1:{listener.getsockname()[1]}", stop


class Proxy:
    """Between a client and a server. Instead of the next `swallow` answers it closes."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self.swallow = 0
        self.swallowed = 0
        self.url, self.stop = _serve(self._handle)

    def _handle(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    data = client.recv(1 << 16)
                    if not data:
                        return
                    server.sendall(data)
                if server in ready:
                    data = server.recv(1 << 16)
                    if not data:
                        return
                    if self.swallow > 0:
                        self.swallow -= 1
                        self.swallowed += 1
                        return
                    client.sendall(data)


@contextlib.contextmanager
def proxy(url: str) -> Iterator[Proxy]:
    between = Proxy(url)
    try:
        yield between
    finally:
        between.stop()


@contextlib.contextmanager
def telling(*answers: bytes) -> Iterator[str]:
    """A server that gives these answers, one a request, and the last one again and again; b"" is silence."""
    left = list(answers)

    def handle(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while client.recv(1 << 20):
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer:
                    client.sendall(answer)

    url, stop = _serve(handle)
    try:
        yield url
    finally:
        stop()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    head = [
        f"HTTP/1.1 {status} Told",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def refusal(status: int, code: str, *headers: str) -> bytes:
    return answer(status, b'{"error":{"code":"%b","message":"told so"}}' % code.encode(), *headers)
