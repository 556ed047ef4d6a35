"""A reader of one event stream that reads what comes and looks at none of it."""

from __future__ import annotations

import socket
from threading import Thread

from benchmarks.compiled import Target

_BUFFER_BYTES = 1024 * 1024
_PATIENCE_S = 10.0


class StreamReader:
    def __init__(self, target: Target, path: str) -> None:
        """Returns when the stream is open."""
        self._sock = socket.create_connection((target.host, target.port), _PATIENCE_S)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        self._sock.sendall(head.encode())
        answer = self._sock.recv(_BUFFER_BYTES)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300].decode(errors="replace")
        self._sock.settimeout(None)
        self.received_bytes = 0
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        buffer = bytearray(_BUFFER_BYTES)
        try:
            while size := self._sock.recv_into(buffer):
                self.received_bytes += size
        except OSError:
            return

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(_PATIENCE_S)
        self._sock.close()
