"""A topic of 100 million tagged records in one server: what it keeps in memory while it grows and is read.

Takes long and needs some 20 GB of disk, so it runs only when it is named.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import msgspec

from benchmarks.contenders import Topics, resident_bytes
from benchmarks.figures import Figure, at_most
from benchmarks.generator import Job
from benchmarks.load import Load
from benchmarks.payloads import NAMED, TAGS, tag
from benchmarks.session import Session

AREA = "scale"
_BATCH = 1000
_CONNECTIONS = 4
_NAME = "large"
_REPORT_S = 10.0
_MIB = 1024 * 1024
_A_FEW_HUNDRED_MB = 700


class _State(msgspec.Struct):
    count: int
    head_seq: int


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        ours = Topics(directory / "topics")
        try:
            yield from _grow(session, ours)
            yield from _read(session, ours)
            yield from _delete(session, ours)
        finally:
            ours.close()


def _memory(ours: Topics) -> float:
    return resident_bytes(ours.pid) / _MIB


def _state(ours: Topics) -> _State:
    return msgspec.json.decode(ours.server.request("GET", f"/v0/topics/{_NAME}").body, type=_State)


def _grow(session: Session, ours: Topics) -> Iterator[Figure]:
    target = session.sizes.scale_records
    plan = [ours.write(_NAME, NAMED, range(at, at + _BATCH)) for at in range(0, 16 * _BATCH, _BATCH)]
    ours.create([_NAME], "disk")
    load = Load(Job(ours.port, ours.protocol, [plan] * _CONNECTIONS))
    started, head, highest = time.perf_counter(), 0, 0.0
    try:
        while head < target:
            load.run(min(_REPORT_S, session.sizes.round_s * 5))
            head, resident = _state(ours).head_seq, _memory(ours)
            highest = max(highest, resident)
            session.say(f"  {head:>12,} records, resident {resident:,.0f} MiB")
    finally:
        load.close()
    elapsed = time.perf_counter() - started
    yield Figure(
        AREA, f"append of {head:,} tagged records, with all background work", head / elapsed, "records/s"
    )
    yield Figure(AREA, "highest resident memory meanwhile", highest, "MiB", bar=at_most(_A_FEW_HUNDRED_MB))


def _read(session: Session, ours: Topics) -> Iterator[Figure]:
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


def _delete(session: Session, ours: Topics) -> Iterator[Figure]:
    before = _state(ours).count
    started = time.perf_counter()
    answer = ours.server.post(f"/v0/topics/{_NAME}/delete", {"match": tag(TAGS // 2)})
    elapsed = time.perf_counter() - started
    assert answer["deleted"] == before - _state(ours).count, answer
    yield Figure(AREA, f"deleting {answer['deleted']:,} records by tag", elapsed, "s")
    yield Figure(AREA, "resident memory after that", _memory(ours), "MiB")
