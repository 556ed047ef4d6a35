"""Count the Python calls that one request makes in the server, until the server is idle again.

python -m tests.walk [--walks 20] [--shape plain] [--files] [--calls] [--json]

The server runs in a thread of this process. Each shape of request is sent some times to warm up, and then
alone under a profile hook on all threads of the server. The hook stays on until the answer has been received
and no function of the package has been called for a while. Counted are "call" events of functions whose
file lies in the package `topics`; the code in C is not visible. Timers of the server can add calls, so the
walk with the fewest calls is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from topics import compiled

# The calls of compiled modules cannot be seen.
os.environ[compiled.SWITCH] = "0"

import topics
from tests.http.streaming import EventReader, RunningApp
from tests.support import Answer, raw_request

SOURCE = f"{Path(topics.__file__).parent}/"
KEY = "secret-of-the-walk"
WALKS = 20
WARM_UP = 5
# The server counts as idle when no function was called for so long.
IDLE_S = 0.01
POLL_S = 0.001
LONGEST_WAIT_S = 5.0


class Recorder:
    """A profile hook that counts all calls of the package, and lists them while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[str, str]] = []
        self._seen = 0

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        self._seen += 1
        if self.is_on:
            self.calls.append((code.co_filename.removeprefix(SOURCE), code.co_qualname))

    def wait_until_idle(self) -> None:
        """Return when no call was made for IDLE_S."""
        end = time.monotonic() + LONGEST_WAIT_S
        seen, since = self._seen, time.monotonic()
        while (now := time.monotonic()) - since < IDLE_S:
            if now > end:
                raise RuntimeError("the server does not become idle")
            time.sleep(POLL_S)
            if self._seen != seen:
                seen, since = self._seen, time.monotonic()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the block causes, also after the block, until the server is idle."""
        self.wait_until_idle()
        self.calls = []
        self.is_on = True
        try:
            yield
            self.wait_until_idle()
        finally:
            self.is_on = False


class Client:
    """One connection to the server, and what the shapes need to make their requests."""

    def __init__(self, app: RunningApp, recorder: Recorder, *, has_key: bool) -> None:
        self.recorder = recorder
        self._app = app
        self._wire = app.wire()
        self._headers = {"Authorization": f"Bearer {KEY}"} if has_key else {}
        self._numbers = itertools.count(1)
        self.readers: list[EventReader] = []

    def number(self) -> int:
        """Return a number that was not returned before."""
        return next(self._numbers)

    def make(self, method: str, path: str, body: bytes | Any, **headers: str) -> bytes:
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        return raw_request(method, path, data, {**headers, **self._headers})

    def send(self, request: bytes) -> Answer:
        self._wire.send(request)
        answer = self._wire.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{answer.status} {answer.body!r} for {request!r}")
        return answer

    def call(self, method: str, path: str, body: Any) -> Any:
        return self.send(self.make(method, path, body)).json

    def watch(self, topic: str) -> EventReader:
        """Open an event stream of a topic, and return it when it has reached the head."""
        wid = self.call("POST", "/v0/watch", {"topics": {topic: {"tail": True}}})["wid"]
        reader = self._app.events(wid, **self._headers)
        reader.until("caught-up")
        self.readers.append(reader)
        return reader

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self._wire.close()


@dataclass(frozen=True)
class Shape:
    """A kind of request: how its topic is configured, and how the bytes of one request are made."""

    name: str
    request: Callable[[Client, str], bytes]
    config: dict[str, Any]
    # Runs once before the first request, and again after each answer, with the topic.
    prepare: Callable[[Client, str], None] = lambda client, topic: None
    finish: Callable[[Client, str], None] = lambda client, topic: None


@dataclass(frozen=True)
class Walk:
    """What one request called, in order: the file and the qualified name of each function."""

    shape: str
    calls: list[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.calls))


RECORD = b'{"data":{"sku":"A-1","price":12}}'


def _append(body: bytes) -> Callable[[Client, str], bytes]:
    return lambda client, topic: client.make("POST", f"/v0/topics/{topic}", body)


def _key_in_header(client: Client, topic: str) -> bytes:
    body = b'{"records":[%b]}' % RECORD
    return client.make(
        "POST", f"/v0/topics/{topic}", body, **{"Idempotency-Key": f"header-{client.number()}"}
    )


def _key_in_body(client: Client, topic: str) -> bytes:
    body = b'{"idempotency_key":"body-%d","records":[%b]}' % (client.number(), RECORD)
    return client.make("POST", f"/v0/topics/{topic}", body)


def _fill(client: Client, topic: str) -> None:
    client.call("POST", f"/v0/topics/{topic}", {"records": [{"data": {"n": n}} for n in range(10)]})


def _diff(client: Client, topic: str) -> bytes:
    return client.make("POST", f"/v0/topics/{topic}/diff", b'{"from_seq":0,"limit":10}')


def _claim(client: Client, topic: str) -> bytes:
    client.send(_PLAIN(client, topic))
    return client.make("POST", f"/v0/topics/{topic}/claim", b'{"node":"worker","max":1}')


def _ack(client: Client, topic: str) -> bytes:
    claimed = client.send(_claim(client, topic)).json["claimed"]
    return client.make("POST", f"/v0/topics/{topic}/ack", {"node": "worker", "seqs": [claimed[0]["$seq"]]})


def _delete(client: Client, topic: str) -> bytes:
    seq = client.send(_PLAIN(client, topic)).json["last_seq"]
    return client.make("POST", f"/v0/topics/{topic}/delete", {"seqs": [seq]})


def _watch(client: Client, topic: str) -> None:
    client.watch(topic)


def _receive(client: Client, topic: str) -> None:
    for reader in client.readers:
        reader.until("record")


_PLAIN = _append(b'{"records":[%b]}' % RECORD)
APPENDS = (
    Shape("plain", _PLAIN, {}),
    Shape("with blanks", _append(b'{"records": [{"data": {"sku": "A-1", "price": 12}}]}'), {}),
    Shape(
        "tag and node",
        _append(b'{"records":[{"data":{"sku":"A-1","price":12},"tag":"user:7","node":"web-1"}]}'),
        {},
    ),
    Shape(
        "meta",
        _append(b'{"records":[{"data":{"sku":"A-1","price":12},"meta":{"trace":"f00d"}}]}'),
        {},
    ),
    Shape("two records", _append(b'{"records":[%b,%b]}' % (RECORD, RECORD)), {}),
    Shape("key in the header", _key_in_header, {}),
    Shape("key in the body", _key_in_body, {}),
    Shape("topic with ttl_ms", _PLAIN, {"ttl_ms": 3_600_000}),
    # So few that each append of the walk makes the oldest record leave.
    Shape("topic with cap_records", _PLAIN, {"cap_records": 3}),
    Shape("topic with priority", _PLAIN, {"priority": 100}),
)
OTHERS = (
    Shape("diff of 10 records", _diff, {}, prepare=_fill),
    Shape("claim of one job", _claim, {"type": "queue"}),
    Shape("ack of one job", _ack, {"type": "queue"}),
    Shape("delete by seq", _delete, {}),
    Shape("append with one watcher", _PLAIN, {}, prepare=_watch, finish=_receive),
)
WITH_KEYS = ", API keys"


def names() -> list[str]:
    """The names of all shapes that are walked."""
    appends = [shape.name for shape in APPENDS]
    return [*appends, *(name + WITH_KEYS for name in appends), *(shape.name for shape in OTHERS)]


def walk(client: Client, shape: Shape, topic: str, walks: int) -> list[tuple[str, str]]:
    """The calls of the shortest of some walks."""
    client.call("PUT", f"/v0/topics/{topic}", shape.config)
    shape.prepare(client, topic)
    shortest: list[tuple[str, str]] | None = None
    for number in range(WARM_UP + walks):
        request = shape.request(client, topic)
        if number < WARM_UP:
            client.send(request)
            shape.finish(client, topic)
            continue
        with client.recorder.recording():
            client.send(request)
            shape.finish(client, topic)
        if shortest is None or len(client.recorder.calls) < len(shortest):
            shortest = client.recorder.calls
    assert shortest is not None
    return shortest


def walk_all(walks: int, wanted: str = "") -> list[Walk]:
    """Walk all shapes whose name contains `wanted`; those with the most calls come first."""
    recorder = Recorder()
    found: list[Walk] = []
    # Threads that are started from here on have the hook.
    threading.setprofile(recorder.hook)
    try:
        for has_key, shapes in ((False, (*APPENDS, *OTHERS)), (True, APPENDS)):
            named = [(shape, shape.name + (WITH_KEYS if has_key else "")) for shape in shapes]
            chosen = [(shape, name) for shape, name in named if wanted in name]
            if chosen:
                found += _walk_on_one_server(recorder, chosen, walks, has_key=has_key)
    finally:
        threading.setprofile(None)
    return sorted(found, key=lambda walk: (-len(walk.calls), -len(walk.files), walk.shape))


def _walk_on_one_server(
    recorder: Recorder, shapes: list[tuple[Shape, str]], walks: int, *, has_key: bool
) -> list[Walk]:
    found = []
    with tempfile.TemporaryDirectory(prefix="topics-walk-") as directory:
        app = RunningApp(Path(directory) / "data", api_keys=KEY if has_key else "")
        try:
            for number, (shape, name) in enumerate(shapes):
                # A connection of its own, so that no shape profits from the requests of another.
                client = Client(app, recorder, has_key=has_key)
                try:
                    found.append(Walk(name, walk(client, shape, f"walk-{number}", walks)))
                finally:
                    client.close()
        finally:
            app.stop()
    return found


def text(walks: list[Walk], *, files: bool, calls: bool) -> str:
    """The table, and below it the lists that were asked for."""
    width = max(len(walk.shape) for walk in walks)
    lines = [f"{'shape':<{width}} | files | calls", f"{'-' * width}-|-------|------"]
    lines += [f"{walk.shape:<{width}} | {len(walk.files):>5} | {len(walk.calls):>5}" for walk in walks]
    for walk in walks:
        if files:
            lines += ["", f"files of {walk.shape}:", *(f"  {file}" for file in walk.files)]
        if calls:
            lines += ["", f"calls of {walk.shape}:", *(f"  {file}  {name}" for file, name in walk.calls)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.walk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--walks", type=int, default=WALKS, help="walks of each shape (%(default)s)")
    parser.add_argument("--shape", default="", metavar="TEXT", help="only shapes whose name contains TEXT")
    parser.add_argument("--files", action="store_true", help="list the files of each walk in order")
    parser.add_argument("--calls", action="store_true", help="list the calls of each walk in order")
    parser.add_argument("--json", action="store_true", help="print one JSON document with all lists")
    options = parser.parse_args(arguments)
    walks = walk_all(max(options.walks, 1), options.shape)
    if not walks:
        parser.error(f"no shape has {options.shape!r} in its name; there are: {', '.join(names())}")
    if options.json:
        document = [
            {
                "shape": walk.shape,
                "files": len(walk.files),
                "calls": len(walk.calls),
                "files_in_order": walk.files,
                "calls_in_order": walk.calls,
            }
            for walk in walks
        ]
        print(json.dumps(document, indent=1))
    else:
        print(text(walks, files=options.files, calls=options.calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
