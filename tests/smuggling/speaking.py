"""Bytes to a server in pieces, and the answers that come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tests.support import Wire

WAYS = ("at once", "line by line", "byte by byte")


def pieces(data: bytes, way: str) -> Iterator[bytes]:
    """What arrives together is up to the network."""
    if way == "at once":
        yield data
    elif way == "line by line":
        yield from data.splitlines(keepends=True)
    else:
        yield from (data[at : at + 1] for at in range(len(data)))


def conversation(address: tuple[str, int], data: bytes, way: str, patience_s: float) -> bytes:
    """All that is answered until the server hangs up; what is there so far when patience ends."""
    wire = Wire(address, patience_s=patience_s)
    heard = b""
    try:
        # A server that has heard enough may hang up in the middle.
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces(data, way):
                wire.send(piece)
        with suppress(ConnectionResetError, TimeoutError):
            while more := wire.socket.recv(65536):
                heard += more
    finally:
        wire.close()
    return heard


def statuses(heard: bytes) -> list[int]:
    """Of all answers in there, each of which has to be whole."""
    found = []
    while heard:
        head, end, rest = heard.partition(b"\r\n\r\n")
        assert end, heard
        version, status, _ = head.split(b" ", 2)
        assert version == b"HTTP/1.1", heard
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(lines[b"content-length"])
        assert len(rest) >= length, heard
        found.append(int(status))
        heard = rest[length:]
    return found
