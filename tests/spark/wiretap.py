"""Between clients and a server: hears requests, can hold one, and hang up in the middle of an answer."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Wiretap:
    """Passes bytes between clients and a server, and notes which requests went by."""

    def __init__(self, target: str) -> None:
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._heard: list[bytes] = []
        # Answers may be cut off after so many bytes, once for each number that is put here.
        self.cuts: list[int] = []
        # The first request with this in it waits for `release`, and `holding` says that it does.
        self.hold: bytes | None = None
        self.holding, self.release = threading.Event(), threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            self._run(self._pass, client, server, True)
            self._run(self._pass, server, client, False)

    def _pass(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                if is_request:
                    self._heard.append(data)
                    if self.hold is not None and self.hold in data and not self.holding.is_set():
                        self.holding.set()
                        self.release.wait(60)
                else:
                    passed += len(data)
                    if self.cuts and passed > self.cuts[0]:
                        self.cuts.pop(0)
                        return
                sink.sendall(data)
        except OSError:
            pass
        finally:
            _hang_up(source, sink)

    @property
    def requests(self) -> list[str]:
        lines = re.findall(rb"(?:GET|POST|PUT|DELETE) \S+", b"".join(self._heard))
        return [line.decode() for line in lines]

    def close(self) -> None:
        _hang_up(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(10)
        for one in (self._listener, *self._sockets):
            one.close()


def _hang_up(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
