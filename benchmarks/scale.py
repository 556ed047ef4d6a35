"""A topic of 100 million tagged records in one server: what it keeps in memory while it grows and is read.

Takes long and needs some 30 GB of disk, so it runs only when it is named. `TOPICS_BENCH_TAGS=unique` gives
nearly every record a tag of its own instead of one of ten thousand.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.contenders import Topics, http_request, resident_bytes
from benchmarks.figures import Figure, at_most
from benchmarks.generator import Job, Request
from benchmarks.load import Load
from benchmarks.payloads import NAMED, compact, node, payload
from benchmarks.session import Session

AREA = "scale"
_BATCH = 1000
_BATCHES = 64
_CONNECTIONS = 4
_NAME = "large"
_REPORT_S = 10.0
_MIB = 1024 * 1024
_A_FEW_HUNDRED_MB = 500
_TAGS = 10_000
_SCANNED = 1_000_000
_PROBE_S = 0.002


class _State(msgspec.Struct):
    count: int
    head_seq: int


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        ours = Topics(directory / "topics")
        try:
            yield from _grow(session, ours)
            yield from _read(ours)
            yield from _scan(ours)
            yield from _delete(ours)
            yield Figure(AREA, "files in the data directory", _files(directory / "topics"), "files")
        finally:
            ours.close()


def _memory(ours: Topics) -> float:
    return resident_bytes(ours.pid) / _MIB


def _state(ours: Topics) -> _State:
    return msgspec.json.decode(ours.server.request("GET", f"/v0/topics/{_NAME}").body, type=_State)


# --- growing --------------------------------------------------------------------------------------------


def _tag(picks: random.Random) -> str:
    if os.environ.get("TOPICS_BENCH_TAGS") == "unique":
        return f"order:{picks.randrange(1 << 40):010x}"
    return f"order:{picks.randrange(_TAGS):05d}"


def _requests() -> list[Request]:
    picks = random.Random(11)
    return [
        http_request(
            f"/v0/topics/{_NAME}",
            compact(
                {
                    "records": [
                        {"data": payload(n), "tag": _tag(picks), "node": node(n)}
                        for n in range(first, first + _BATCH)
                    ]
                }
            ),
        )
        for first in range(0, _BATCHES * _BATCH, _BATCH)
    ]


def _grow(session: Session, ours: Topics) -> Iterator[Figure]:
    target = session.sizes.scale_records
    plan = _requests()
    ours.create([_NAME], "disk")
    load = Load(Job(ours.port, ours.protocol, [plan] * _CONNECTIONS))
    started, head, highest = time.perf_counter(), 0, 0.0
    try:
        while head < target:
            load.run(min(_REPORT_S, session.sizes.round_s * 5))
            head, resident = _state(ours).head_seq, _memory(ours)
            highest = max(highest, resident)
            seconds = time.perf_counter() - started
            session.say(f"  {head:>12,} records after {seconds:,.0f} s, resident {resident:,.0f} MiB")
    finally:
        load.close()
    elapsed = time.perf_counter() - started
    yield Figure(
        AREA, f"append of {head:,} tagged records, with all background work", head / elapsed, "records/s"
    )
    yield Figure(AREA, "highest resident memory meanwhile", highest, "MiB", bar=at_most(_A_FEW_HUNDRED_MB))


# --- from cold ------------------------------------------------------------------------------------------


def _read(ours: Topics) -> Iterator[Figure]:
    head = _state(ours).head_seq
    picks = random.Random(7)
    pages = 200
    found = 0
    started = time.perf_counter()
    with ours.connection() as send:
        for _ in range(pages):
            body = send(ours.read(_NAME, picks.randrange(max(head - 1000, 1)), 1000, NAMED))
            found += body.count(b'"$seq":')
    elapsed = time.perf_counter() - started
    yield Figure(AREA, "diff of 1000 anywhere in it, one connection", found / elapsed, "records/s")
    yield Figure(AREA, "resident memory after reading all over it", _memory(ours), "MiB")


def _scan(ours: Topics) -> Iterator[Figure]:
    import pyarrow as pa

    started = time.perf_counter()
    answer = ours.server.request("POST", f"/v0/topics/{_NAME}/scan", {"to_seq": _SCANNED})
    with pa.ipc.open_stream(answer.body) as reader:
        found = sum(batch.num_rows for batch in reader)
    elapsed = time.perf_counter() - started
    assert found == min(_SCANNED, _state(ours).head_seq), found
    yield Figure(AREA, "scan of the oldest million", found / elapsed, "records/s")
    yield Figure(AREA, "resident memory after that scan", _memory(ours), "MiB")


def _delete(ours: Topics) -> Iterator[Figure]:
    for predicate in (_tag(random.Random(11)), "order:00*"):
        before = _state(ours).count
        with _probing(ours) as waits:
            started = time.perf_counter()
            with ours.connection() as send:
                body = send(http_request(f"/v0/topics/{_NAME}/delete", compact({"match": predicate})))
            elapsed = time.perf_counter() - started
        answer = msgspec.json.decode(body)
        assert answer["deleted"] == before - _state(ours).count, answer
        yield Figure(
            AREA,
            f"deleting {answer['deleted']:,} records, match {predicate}",
            elapsed,
            "s",
            note=f"another client waited {max(waits) * 1000:.0f} ms at most for a short answer meanwhile",
        )
        yield Figure(AREA, "resident memory after that deletion", _memory(ours), "MiB")


@contextmanager
def _probing(ours: Topics) -> Iterator[list[float]]:
    """Somebody else asks for something small, again and again; the list is how long each answer took."""
    waits = [0.0]
    head = _state(ours).head_seq
    is_over = threading.Event()

    def probe() -> None:
        with ours.connection() as send:
            while not is_over.wait(_PROBE_S):
                started = time.perf_counter()
                send(ours.read(_NAME, head - 1, 1, NAMED))
                waits.append(time.perf_counter() - started)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()


def _files(directory: Path) -> float:
    return float(sum(len(files) for _, _, files in os.walk(directory)))
