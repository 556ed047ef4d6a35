"""RabbitMQ streams as a peer: a broker of our own, and its stream protocol as far as writing needs it.

A frame is a length, a key, a version and what belongs to the key; a request has a number besides, which its
answer repeats. Every published message has a number of its own, and the broker confirms these numbers in
order, and in as many frames as it likes: the last one ends the answer.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.compiled import Greeting, Sent, Target
from benchmarks.payloads import Shape, node, payload, tag
from benchmarks.peer_servers import NAMES, wait_for_port
from tests.support import free_port

# Debian's own command changes user and directory; this is the one behind it.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# Starting Erlang and its database takes a while, and longer on a busy machine.
_READY_S = 180.0
_PUBLISHER, _PUBLISH, _CREATE = 1, 2, 13
_PROPERTIES, _MECHANISMS, _AUTHENTICATE, _TUNE, _OPEN = 17, 18, 19, 20, 21
_OK = struct.pack("!H", 1)
_THERE_ALREADY = struct.pack("!H", 5)
# Of frames, and of heartbeats, which we do without.
_LIMITS = struct.pack("!II", 1 << 20, 0)
# What answers are known by: more than any two of them have in common.
_KNOWN_BYTES = 32
# An AMQP 1.0 message that is nothing but data, as clients of streams send it.
_DATA_SECTION = b"\0\x53\x75\xb0"
# Another section, which comes first: properties that an application gives its message.
_PROPERTIES_SECTION = b"\0\x53\x74\xc1"
# No number before it ends in the same bytes.
_LAST_NUMBER = 1 << 62


class RabbitStreams:
    """Streams are never synced by the broker, so there is one only for records in the system's hands."""

    def __init__(self, directory: Path, durability: str) -> None:
        if not _PROGRAM.exists() or shutil.which("epmd") is None:
            raise RuntimeError("rabbitmq-server is not installed (Debian: rabbitmq-server)")
        if durability == "fsync":
            raise RuntimeError("RabbitMQ does not sync its streams")
        place, port = directory / "rabbitmq", free_port()
        place.mkdir()
        (place / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nstream.listeners.tcp.1 = 127.0.0.1:{port}\n"
        )
        (place / "plugins").write_text("[rabbitmq_stream].")
        self._epmd_port = free_port()
        self._pid_file = place / "pid"
        with (place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [_PROGRAM], cwd=place, env=self._environment(place, port), stdout=log, stderr=log
            )
        self.label = "RabbitMQ streams"
        self.pid: int | None = self._process.pid
        self.target = Target("127.0.0.1", port)
        self._introduction: list[Greeting] = []
        try:
            wait_for_port(port, self._process, _READY_S)
        except RuntimeError:
            self.close()
            raise

    def _environment(self, place: Path, port: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
            "RABBITMQ_LOG_BASE": str(place / "logs"),
            "RABBITMQ_MNESIA_BASE": str(place / "data"),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_PID_FILE": str(self._pid_file),
        }

    def greetings(self, connection: int) -> Sequence[Greeting]:
        """Who we are, and then a publisher for each stream; a publisher's number is its place in `NAMES`."""
        return (*self._introduction, *(self._publisher(number) for number in range(len(NAMES))))

    def _introduced(self, sock: socket.socket) -> list[Greeting]:
        """Says who we are, and notes how each answer ends: what the broker says of itself is its own."""
        password = b"\0guest\0guest"
        proof = _short(b"PLAIN") + struct.pack("!i", len(password)) + password
        # It wants each of them by itself, and tells its limits unasked behind the answer to the third.
        steps = (
            (_request(_PROPERTIES, 1, struct.pack("!i", 0)), 1),
            (_request(_MECHANISMS, 2, b""), 1),
            (_request(_AUTHENTICATE, 3, proof), 2),
            (_frame(_TUNE, _LIMITS) + _request(_OPEN, 4, _short(b"/")), 1),
        )
        said = []
        for data, frames in steps:
            sock.sendall(data)
            answers = [_received(sock) for _ in range(frames)]
            said.append(Greeting(data, answers[-1][-_KNOWN_BYTES:]))
        return said

    def _publisher(self, number: int) -> Greeting:
        asked = bytes([number]) + _short(b"") + _short(NAMES[number].encode())
        return Greeting(_request(_PUBLISHER, 5, asked), _answer(_PUBLISHER, 5, _OK))

    def prepare(self) -> None:
        """Streams stay as they are between two rounds: with a stream, its publishers would go as well."""
        with socket.create_connection((self.target.host, self.target.port), _READY_S) as sock:
            self._introduction = self._introduced(sock)
            for name in NAMES:
                sock.sendall(_request(_CREATE, 6, _short(name.encode()) + struct.pack("!i", 0)))
                assert _received(sock).endswith((_OK, _THERE_ALREADY))

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        """One frame, with one entry for each record."""
        entries = b""
        for at, number in enumerate(numbers):
            text = shape.text(payload(number))
            message = _DATA_SECTION + struct.pack("!I", len(text)) + text
            if shape.has_names:
                message = _properties({"tag": tag(number), "node": node(number)}) + message
            known_as = _LAST_NUMBER if at == len(numbers) - 1 else at
            entries += struct.pack("!QI", known_as, len(message)) + message
        head = bytes([NAMES.index(name)]) + struct.pack("!I", len(numbers))
        return Sent(_frame(_PUBLISH, head + entries), end=struct.pack("!Q", _LAST_NUMBER))

    def close(self) -> None:
        # What was started is a script; the broker that it waits for has told its number.
        if self._process.poll() is None and self._pid_file.exists():
            os.kill(int(self._pid_file.read_text()), signal.SIGTERM)
        else:
            self._process.terminate()
        self._process.wait(60)
        # The registry of nodes that the broker has started stays otherwise.
        command = ["epmd", "-port", str(self._epmd_port), "-kill"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _short(text: bytes) -> bytes:
    return struct.pack("!h", len(text)) + text


def _properties(values: Mapping[str, str]) -> bytes:
    """A section with a map of short texts: its size, how many there are, and each with its own size."""
    words = [word.encode() for pair in values.items() for word in pair]
    told = bytes([len(words)]) + b"".join(b"\xa1%c%b" % (len(word), word) for word in words)
    return _PROPERTIES_SECTION + bytes([len(told)]) + told


def _frame(key: int, content: bytes) -> bytes:
    return struct.pack("!IHH", 4 + len(content), key, 1) + content


def _request(key: int, number: int, content: bytes) -> bytes:
    return _frame(key, struct.pack("!I", number) + content)


def _answer(key: int, number: int, content: bytes) -> bytes:
    return _request(key | 0x8000, number, content)


def _received(sock: socket.socket) -> bytes:
    """The next frame."""
    head = _exactly(sock, 4)
    return head + _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, size: int) -> bytes:
    told = b""
    while len(told) < size:
        piece = sock.recv(size - len(told))
        if not piece:
            raise RuntimeError("RabbitMQ has closed the connection")
        told += piece
    return told
