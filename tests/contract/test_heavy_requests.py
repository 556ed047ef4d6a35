"""Requests made to stop the server for everyone else: each is answered, or refused, in its turn.

The watchdogs are wide. What is shown is that the work follows the bytes: before, these took minutes.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from tests.contract.conftest import Boot
from tests.contract.server import Server
from tests.support import arrow
from tests.support.arrow import arrow_stream
from topics.core import MIB


def test_a_body_full_of_a_routers_keys(boot: Boot) -> None:
    """14 MB in which the key of a copy stands 300,000 times; 1 MB of it had held the loop for 104 s."""
    server = boot()
    source, dest = server.topic("source"), server.topic("dest")
    definition = {"source": "source", "dest": "dest", "guarantee": "exactly_once"}
    server.send("PUT", "/v0/routers/r", definition).ok(201)
    epoch = server.send("GET", source.path).ok()["epoch"]
    key = f"router:r:{epoch}:{epoch}:"
    data = [{"idempotency_key": f"{key}{number}"} for number in range(1, 21_000)]
    meta = {"text": [f'"idempotency_key":"{key}1"'] * 200}
    record = json.dumps({"data": data, "meta": meta}).encode()
    dest.post(b'{"records":[%b]}' % b",".join([record] * 16)).ok()
    source.write("copied all the same")
    assert server.send("GET", "/v0/routers/r").ok()["forwarded_total"] == 1
    page = server.send("POST", f"{dest.path}/diff", {"from_seq": 16}).ok()
    assert [record["data"] for record in page["records"]] == ["copied all the same"]


class Pulse:
    """Asks for the server's health all the time; the longest wait shows how long it was held."""

    def __init__(self, server: Server) -> None:
        self.longest_s = 0.0
        self._client = server.client()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._end.is_set():
            started = time.monotonic()
            assert self._client.send("GET", "/v0/health").status == 200
            self.longest_s = max(self.longest_s, time.monotonic() - started)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._client.close()


def peak_memory(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
BOMBS = {
    "compressed": lambda: arrow.repeated(32, 64),
    "lying": lambda: arrow.lying(2_000_000_000),
    "dictionary": lambda: arrow.dictionary(1_000_000, 2000),
    "views": lambda: arrow.views(1_000_000, 2000),
}


def test_arrow_bodies_that_unfold_to_gigabytes(boot: Boot) -> None:
    """61 kB that unfold to 2 GB had taken these 2 GB, and held the loop for 5 s."""
    server = boot()
    server.topic("t")
    # Whatever comes with the first Arrow request is there.
    rows = arrow_stream({"data": ["1"]})
    server.send("POST", "/v0/topics/t/append", rows, **ARROW).ok()
    server.send("PUT", "/v0/stages/s/parts/0?topic=t", rows, **ARROW).ok()
    before = peak_memory(server)
    with Pulse(server) as pulse:
        for name, made in BOMBS.items():
            body = made()
            assert len(body) < 1_100_000
            for method, path in (("POST", "/v0/topics/t/append"), ("PUT", "/v0/stages/s/parts/1")):
                answer = server.send(method, path, body, **ARROW)
                assert (answer.status, name) == (413, name)
                answer.refused(413, "payload_too_large")
    assert peak_memory(server) - before < 64 * MIB
    assert pulse.longest_s < 3
    # What fits is taken, however small it was packed.
    answer = server.send("POST", "/v0/topics/t/append", arrow.repeated(8, 2), **ARROW).ok()
    assert answer["count"] == 32


def test_copies_to_ten_destinations_stay_within_the_memory_for_records(boot: Boot) -> None:
    """They came into memory past the brake: 100 MB and their copies took 860 MB with a budget of 64 MiB."""
    server = boot(TOPICS_HOT_BYTES=str(64 * MIB))
    server.topic("source")
    for number in range(10):
        server.send("PUT", f"/v0/routers/r{number}", {"source": "source", "dest": f"d{number}"}).ok(201)
    body = json.dumps({"records": [{"data": "x" * 200}] * 4000}).encode()
    before = peak_memory(server)

    def write() -> None:
        with closing(server.client()) as client:
            for _ in range(25):
                client.send("POST", "/v0/topics/source", body).ok()

    with ThreadPoolExecutor(4) as writers:
        for written in [writers.submit(write) for _ in range(4)]:
            written.result()
    # Each of them waits for its copies.
    assert {server.send("GET", f"/v0/topics/d{number}").ok()["head_seq"] for number in range(10)} == {400_000}
    assert peak_memory(server) - before < 6 * 64 * MIB


def test_the_ceiling_is_that_of_bodies(boot: Boot) -> None:
    server = boot(TOPICS_MAX_BODY_BYTES="100000")
    server.topic("t")
    for values, fits in ((90, True), (110, False)):
        body = arrow.dictionary(1000, values)
        assert len(body) < 10_000
        answer = server.send("POST", "/v0/topics/t/append", body, **ARROW)
        assert answer.status == (200 if fits else 413)
        answer = server.send("PUT", "/v0/stages/s/parts/0", body, **ARROW)
        assert answer.status == (200 if fits else 413)
