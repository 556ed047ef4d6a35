"""Two servers as processes, the connections to them, and what is compared of their answers."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_S = 60.0
STOP_S = 60.0
ANSWER_S = 40.0
# The first epochs of a data directory belong to topics that are not compared.
FIRST_NUMBERS = 1000
MASTER = "boss"
# Everything; reads alone; writes alone; names with one beginning.
API_KEYS = f"{MASTER},reader:read,writer:write,eraser:delete,partial:read+write:p.,all-of-p::p."


@dataclass(slots=True)
class Request:
    """The bytes of one request, or the text of one message of a WebSocket."""

    data: bytes
    # What it is an example of. The first one is its shape.
    features: tuple[str, ...]
    head_only: bool = False
    is_message: bool = False


@dataclass(slots=True)
class Answer:
    """The status is 0 if the connection ended, and -1 if nothing came in time."""

    status: int
    head: bytes
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


ENDED = Answer(0, b"", b"")
LATE = Answer(-1, b"", b"")


class Connection:
    """One connection of HTTP/1.1 that is opened when it is needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._rest = b""

    def send(self, data: bytes) -> None:
        for _ in range(2):
            if self._socket is None:
                self._socket = connected(self._address)
            try:
                self._socket.sendall(data)
                return
            except (BrokenPipeError, ConnectionResetError):
                # The server may end a connection after an answer: the next request has a new one.
                self.close()

    def receive(self, *, head_only: bool) -> Answer:
        if self._socket is None:
            return ENDED
        try:
            answer = self._read(head_only=head_only)
        except (ConnectionError, EOFError):
            self.close()
            return ENDED
        except TimeoutError:
            self.close()
            return LATE
        if b"\nconnection: close\r" in answer.head.lower():
            self.close()
        return answer

    def _more(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(262_144)
        if not data:
            raise EOFError
        self._rest += data

    def _read(self, *, head_only: bool) -> Answer:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            self._more()
        head, self._rest = self._rest[: end + 2], self._rest[end + 4 :]
        status = int(head[9:12])
        if head_only or status in (204, 304):
            return Answer(status, head, b"")
        length = _LENGTH.search(head)
        if length is None:
            return Answer(status, head, b"".join(iter(self._chunk, b"")))
        size = int(length[1])
        return Answer(status, head, self._take(size))

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._more()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _chunk(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            self._more()
        size = int(self._rest[:end], 16)
        self._rest = self._rest[end + 2 :]
        data = self._take(size)
        self._take(2)
        return data

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""


class MessageSocket:
    """A WebSocket that sends and receives text messages."""

    def __init__(self, address: tuple[str, int], *, has_keys: bool) -> None:
        self._socket = connected(address)
        key = f"Authorization: Bearer {MASTER}\r\n" if has_keys else ""
        self._socket.sendall(
            "GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{key}\r\n".encode()
        )
        self._rest = b""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def _more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError
        self._rest += data

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._more()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def send(self, data: bytes) -> None:
        # A mask of zeros leaves the text as it is.
        if len(data) < 126:
            size = bytes([0x80 | len(data)])
        elif len(data) < 65536:
            size = bytes([0x80 | 126]) + struct.pack(">H", len(data))
        else:
            size = bytes([0x80 | 127]) + struct.pack(">Q", len(data))
        try:
            self._socket.sendall(b"\x81" + size + b"\0\0\0\0" + data)
        except ConnectionError:
            pass

    def receive(self) -> Answer:
        """The next message, with 200 for a status; an error of the server is 400."""
        try:
            while True:
                opcode, size = self._take(2)
                if size == 126:
                    size = struct.unpack(">H", self._take(2))[0]
                elif size == 127:
                    size = struct.unpack(">Q", self._take(8))[0]
                data = self._take(size)
                if opcode & 15 == 8:
                    return ENDED
                if opcode & 15 in (0, 1):
                    return Answer(400 if b'"op":"error"' in data else 200, b"", data)
        except TimeoutError:
            return LATE
        except (ConnectionError, EOFError):
            return ENDED

    def close(self) -> None:
        self._socket.close()


def connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# --- what is compared ---------------------------------------------------------------------------------------

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r", re.IGNORECASE)
_VARIES_IN_HEAD = re.compile(rb"\r\n(?:date|content-length): [^\r]*", re.IGNORECASE)
_PERFORMANCE = re.compile(rb'"performance":\{[^{}]*\}')
_DURATION = re.compile(rb'_ms":[0-9.e+-]+')
# A time of today in milliseconds, wherever a number may stand.
_TIME = re.compile(rb"(?<=[\[:,])1[789]\d{11}(?![\d.])")
_PRIORITY = re.compile(rb'"effective_priority":[0-9.e+-]+')
_EPOCH = re.compile(rb'("(?:epoch|previous_epoch|source_epoch|source_topic_id)":)(\d+)')
# The key of a copy of a router: its name, the number and the epoch of the source, and the seq there.
_COPY = re.compile(rb"(router:[^\s:\"]+:)(\d+):\d+(?=:\d+\")")
_LAST_TIMES = re.compile(rb'("last_(?:write|read)_ts":)(?:null|TIME)')
_REQUEST_ID = re.compile(rb'"request_id":(\d+)')
_LEASE = re.compile(rb"lease_[0-9a-f]{8,16}\b")


class Normal:
    """What is compared of the answers of a lane: all but times, durations, and what decays with time.

    Ids of leases are random: they are replaced by their order in the lane. Epochs are counted over all topics
    of a server. With `has_others`, the order in which other lanes make theirs is not known, and an epoch is
    replaced by its order in the lane; without, by its distance from the first one. `after_kill` leaves out
    when a topic was last written and read, and which records of an ephemeral topic a cap had taken before the
    others were lost: what a server knows of that after it was killed depends on when its last snapshot was.
    """

    def __init__(self, *, has_others: bool, after_kill: bool = False) -> None:
        self._after_kill = after_kill
        self._has_others = has_others
        self._first_epoch: int | None = None
        self._epochs: dict[bytes, int] = {}
        self._leases: dict[bytes, int] = {}

    def of(self, answer: Answer) -> tuple[int, bytes, bytes]:
        body = answer.body
        if answer.head and b"\ncontent-encoding: gzip\r" in answer.head.lower():
            body = gzip.decompress(body)
        if b'"performance"' in body:
            body = _PERFORMANCE.sub(lambda found: _DURATION.sub(b'_ms":0', found[0]), body)
        body = _TIME.sub(b"TIME", body)
        if b'"effective_priority"' in body:
            body = _PRIORITY.sub(b'"effective_priority":0', body)
        if self._after_kill:
            body = _LAST_TIMES.sub(rb"\1", body)
            if b'"ranges":[' in body or b'"buckets":[' in body:
                body = _with_one_kind_of_loss(body)
        if b"lease_" in body:
            body = _LEASE.sub(self._lease, body)
        if b'"router:' in body:
            body = _COPY.sub(self._epoch, body)
        return answer.status, _VARIES_IN_HEAD.sub(b"", answer.head), _EPOCH.sub(self._epoch, body)

    def _lease(self, found: re.Match[bytes]) -> bytes:
        return b"lease_%d" % self._leases.setdefault(found[0], len(self._leases))

    def _epoch(self, found: re.Match[bytes]) -> bytes:
        if int(found[2]) <= FIRST_NUMBERS:
            return found[0]
        if self._has_others:
            return b"%bE%d" % (found[1], self._epochs.setdefault(found[2], len(self._epochs)))
        epoch = int(found[2])
        if self._first_epoch is None:
            self._first_epoch = epoch
        return b"%bE%+d" % (found[1], epoch - self._first_epoch)


def _with_one_kind_of_loss(body: bytes) -> bytes:
    """A ledger that tells what was deleted from what was lost, whatever the reason."""
    ledger = json.loads(body)
    ranges: list[dict[str, Any]] = []
    for found in ledger.get("ranges", ()):
        kind = "deleted" if found["kind"] == "deleted" else "lost"
        if ranges and ranges[-1]["kind"] == kind and ranges[-1]["to"] + 1 == found["from"]:
            ranges[-1]["to"] = found["to"]
        else:
            ranges.append({**found, "kind": kind})
    for bucket in ledger.get("buckets", ()):
        bucket["lost"] = sum(bucket.pop(kind) for kind in ("cap", "ttl", "trim", "lost"))
    return json.dumps({**ledger, "ranges": ranges}, separators=(",", ":")).encode()


# --- processes ----------------------------------------------------------------------------------------------


class Server:
    """`topics serve` of a checkout or of a Python, as a process with a data directory of its own."""

    def __init__(self, where: Path, folder: Path, settings: dict[str, str] | None = None) -> None:
        where = where.absolute()
        self._settings = settings or {}
        is_checkout = where.is_dir()
        self.python = where / ".venv" / "bin" / "python" if is_checkout else where
        # A copy of a checkout may share the environment of another one.
        self._path = {"PYTHONPATH": str(where / "src")} if is_checkout else {}
        folder.mkdir(parents=True)
        self._folder = folder
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("127.0.0.1", 0)
        self.has_keys = False

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        kept.pop("PYTHONPATH", None)
        return kept | self._path

    def package(self) -> str:
        """Where the package lies that is started."""
        command = [str(self.python), "-c", "import topics; print(topics.__file__)"]
        run = subprocess.run(
            command, env=self._environment(), cwd=self._folder, capture_output=True, text=True, check=True
        )
        return str(Path(run.stdout.strip()).parent)

    def launch(self, *, has_keys: bool, is_new: bool) -> None:
        """Start the process, in a new data directory or in the one that it had."""
        self._lives += is_new
        self.has_keys = has_keys
        self._port_file.unlink(missing_ok=True)
        settings = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self._folder / f"data-{self._lives}"),
            "TOPICS_SLOW_REQUEST_MS": "0",
            **self._settings,
        }
        if has_keys:
            settings["TOPICS_API_KEYS"] = API_KEYS
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.python), "-m", "topics", "serve"],
                env=self._environment() | settings,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    @property
    def _port_file(self) -> Path:
        return self._folder / "port"

    @property
    def log_file(self) -> Path:
        return self._folder / "server.log"

    def wait_until_ready(self) -> None:
        assert self._process is not None
        end = time.monotonic() + READY_S
        while not (self._port_file.exists() and self._port_file.read_text().strip()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start:\n{self.log_file.read_text()[-3000:]}")
            time.sleep(0.01)
        host, _, port = self._port_file.read_text().strip().rpartition(":")
        self.address = host, int(port)
        while True:
            connection = Connection(self.address)
            connection.send(b"GET /v0/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = connection.receive(head_only=False).status
            connection.close()
            if status == 200:
                return
            if time.monotonic() > end:
                raise RuntimeError("the server does not become ready")
            time.sleep(0.01)

    def stop(self, *, kill: bool) -> int:
        """End the process and return its exit code."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        return process.wait(STOP_S)

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process meanwhile, so that it finds everything that was sent in one turn of its loop."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def complaints(self) -> list[str]:
        """Lines of the log that tell of a defect."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        return [
            line for line in lines if "Traceback" in line or " ERROR " in line or "error:" in line.lower()
        ]


def _in_order(answers: list[Answer], requests: list[Request]) -> list[Answer]:
    """Sort answers to messages by `request_id`: a refusal may come before an answer to an earlier one."""
    if not requests[0].is_message or len(answers) == 1:
        return answers
    return sorted(answers, key=_request_id)


def _request_id(answer: Answer) -> tuple[int, bytes]:
    found = _REQUEST_ID.search(answer.body)
    return (int(found[1]), b"") if found else (1 << 30, answer.body)


class Driver:
    """Sends the bursts of all lanes to one server, and receives the answers."""

    # In bursts above this size, the server reads while it is sent.
    _MUCH = 100_000

    def __init__(self, server: Server, *, one_at_a_time: bool = False) -> None:
        self.server = server
        self._one_at_a_time = one_at_a_time
        self._connections: dict[int, Connection] = {}
        self._sockets: dict[int, MessageSocket] = {}
        self._answers: dict[int, list[Answer]] = {}

    def send(self, bursts: dict[int, list[Request]], *, in_one_turn: bool) -> None:
        if self._one_at_a_time:
            self._answers = {}
            for lane, requests in bursts.items():
                self._answers[lane] = []
                for request in requests:
                    self._send(lane, [request])
                    self._answers[lane].append(self._receive(lane, request))
            return
        if not in_one_turn:
            for lane, requests in bursts.items():
                self._send(lane, requests)
            return
        for lane, requests in bursts.items():
            if requests[0].is_message:
                self._message_socket(lane)
        later = {lane for lane, requests in bursts.items() if sum(len(r.data) for r in requests) > self._MUCH}
        with self.server.stopped():
            for lane, requests in bursts.items():
                if lane not in later:
                    self._send(lane, requests)
        for lane in later:
            self._send(lane, bursts[lane])

    def receive(self, bursts: dict[int, list[Request]]) -> dict[int, list[Answer]]:
        if self._one_at_a_time:
            return {lane: _in_order(answers, bursts[lane]) for lane, answers in self._answers.items()}
        return {
            lane: _in_order([self._receive(lane, request) for request in requests], requests)
            for lane, requests in bursts.items()
        }

    def _connection(self, lane: int) -> Connection:
        found = self._connections.get(lane)
        if found is None:
            found = self._connections[lane] = Connection(self.server.address)
        return found

    def _message_socket(self, lane: int) -> MessageSocket:
        found = self._sockets.get(lane)
        if found is None:
            found = MessageSocket(self.server.address, has_keys=self.server.has_keys)
            self._sockets[lane] = found
        return found

    def _send(self, lane: int, requests: list[Request]) -> None:
        """Either requests or messages, in one piece as far as possible."""
        if requests[0].is_message:
            for request in requests:
                self._message_socket(lane).send(request.data)
        else:
            self._connection(lane).send(b"".join(request.data for request in requests))

    def _receive(self, lane: int, request: Request) -> Answer:
        if request.is_message:
            return self._message_socket(lane).receive()
        return self._connection(lane).receive(head_only=request.head_only)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        for message_socket in self._sockets.values():
            message_socket.close()
        self._connections.clear()
        self._sockets.clear()
