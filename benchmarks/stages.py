"""A large commit, and what others notice of it: how long their appends take, and what the server grows by."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pyarrow as pa

from benchmarks.contenders import Topics
from benchmarks.figures import Figure, at_most
from benchmarks.session import Session

AREA = "stages"
_PART_BYTES = 8 * 1024 * 1024
_RECORD = json.dumps({"text": "x" * 1000}, separators=(",", ":"))
# Appends of others, one after the other, with such a pause in between.
_PAUSE_S = 0.01
_ARROW = "application/vnd.apache.arrow.stream"
_JSON = "application/json"


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        try:
            server.create(["large", "other"], "disk")
            yield from _large_commit(session, server)
        finally:
            server.close()


def _large_commit(session: Session, server: Topics) -> Iterator[Figure]:
    size = session.sizes.stage_bytes
    shown = f"{size / 1024 / 1024:.0f} MiB"
    session.say(f"  a stage of {shown}, uploaded and committed")
    before = _own_bytes(server.pid)
    part = _part()
    parts = [f"p{number}" for number in range(max(size // len(part), 1))]
    with _Others(server) as others:
        for name in parts:
            _ask(server.port, "PUT", f"/v0/stages/large/parts/{name}?topic=large", part, _ARROW)
        others.begin()
        started = time.perf_counter()
        body = json.dumps({"identity": {"id": "bench", "batch": 0}, "parts": parts}).encode()
        _ask(server.port, "POST", "/v0/stages/large/commit", body, _JSON)
        took = time.perf_counter() - started
    waits = others.waits_ms
    percentile = quantiles(waits, n=100)[98] if len(waits) > 1 else waits[0]
    yield Figure(
        AREA,
        f"p99 of others' appends while a stage of {shown} is committed",
        percentile,
        "ms",
        bar=at_most(50),
        note=f"the commit took {took:.2f} s; {len(waits)} appends meanwhile, the longest {max(waits):.0f} ms",
    )
    grown = (others.largest - before) / 1024 / 1024
    name = f"the server's own memory, growth by a stage of {shown}, upload included"
    yield Figure(AREA, name, grown, "MiB", bar=at_most(256))


def _part() -> bytes:
    rows = [_RECORD] * (_PART_BYTES // len(_RECORD))
    batch = pa.RecordBatch.from_pydict({"data": pa.array(rows, pa.string())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


class _Others:
    """Somebody who appends single records all the time, and somebody who looks at the server's memory."""

    def __init__(self, server: Topics) -> None:
        self.waits_ms: list[float] = []
        self.largest = 0
        self._server = server
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._append, self._look)]

    def begin(self) -> None:
        """Only what comes from now on is counted."""
        self.waits_ms.clear()

    def _append(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=120)
        while not self._over.is_set():
            started = time.perf_counter()
            headers = {"Content-Type": _JSON}
            connection.request("POST", "/v0/topics/other", b'{"records":[{"data":1}]}', headers)
            assert connection.getresponse().read()
            self.waits_ms.append((time.perf_counter() - started) * 1000)
            self._over.wait(_PAUSE_S)
        connection.close()

    def _look(self) -> None:
        while not self._over.wait(_PAUSE_S):
            self.largest = max(self.largest, _own_bytes(self._server.pid))

    def __enter__(self) -> _Others:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def _own_bytes(pid: int) -> int:
    """Without pages of files, which the system takes back when it wants them."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell what memory is a process's own")


def _ask(port: int, method: str, path: str, body: bytes, content_type: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body, {"Content-Type": content_type})
    answer = connection.getresponse()
    assert answer.status < 300, answer.read()
    answer.read()
    connection.close()
