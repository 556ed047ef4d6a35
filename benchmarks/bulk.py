"""Columns against JSON, both ours: the same records appended and read back whole, as Arrow and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from benchmarks.contenders import Refused, Topics, http_request
from benchmarks.figures import Figure, at_least, times_peer
from benchmarks.generator import Job, Request
from benchmarks.load import Load
from benchmarks.payloads import COMPACT, PAYLOAD_BYTES, Payload, compact, payload
from benchmarks.rounds import Contender, compare
from benchmarks.session import Session

AREA = "bulk"
_ARROW = "application/vnd.apache.arrow.stream"
_CONNECTIONS = 2
_BATCH = 10_000
_NAMES = ("bulk-json", "bulk-arrow")


class _Record(msgspec.Struct, gc=False):
    data: Payload
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")


class _Diff(msgspec.Struct, gc=False):
    records: list[_Record]
    next_from_seq: int
    caught_up: bool


_diff = msgspec.json.Decoder(_Diff)


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        ours = Topics(directory / "topics")
        try:
            _require_routes(ours)
            yield _appends(session, ours)
            yield _reads(session, ours)
        finally:
            ours.close()


def _require_routes(ours: Topics) -> None:
    with ours.connection() as send:
        try:
            send(_arrow_append("bulk-arrow", [1]))
        except Refused as error:
            raise RuntimeError(f"the bulk plane does not answer: {error}") from None


def _arrow_append(name: str, numbers: Sequence[int]) -> Request:
    batch = pa.RecordBatch.from_pydict({"data": [compact(payload(n)).decode() for n in numbers]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return http_request(f"/v0/topics/{name}/append", sink.getvalue().to_pybytes(), _ARROW)


def _appends(session: Session, ours: Topics) -> Figure:
    name = f"append, batches of {_BATCH}, {_CONNECTIONS} connections, disk: Arrow against JSON"
    session.say(f"  {name}")

    def renew() -> None:
        ours.drop(_NAMES)
        ours.create(_NAMES, "disk")

    stretches = [range(first, first + _BATCH) for first in range(0, 4 * _BATCH, _BATCH)]
    plans = (
        [_arrow_append("bulk-arrow", numbers) for numbers in stretches],
        [ours.write("bulk-json", COMPACT, numbers) for numbers in stretches],
    )
    renew()
    loads = [Load(Job(ours.port, ours.protocol, [plan] * _CONNECTIONS)) for plan in plans]
    try:
        return compare(
            session,
            AREA,
            name,
            Contender("Arrow", loads[0].moving(_BATCH), ours.pid, renew),
            Contender("JSON plane", loads[1].moving(_BATCH), ours.pid, renew),
            # By itself: both write every byte to the same files, and columns save nothing of that.
            at_least(2.2e6),
        )
    finally:
        for load in loads:
            load.close()


def _reads(session: Session, ours: Topics) -> Figure:
    count = session.sizes.bulk_records
    name = f"full read of {count} records: into an Arrow table against decoded JSON diffs"
    session.say(f"  {name}")
    ours.drop(["bulk-read"])
    ours.fill("bulk-read", COMPACT, count)

    def arrow(_: float) -> tuple[int, float]:
        started = time.perf_counter()
        table = _scan(ours, "bulk-read")
        elapsed = time.perf_counter() - started
        assert table.num_rows == count
        _check(table)
        return count, elapsed

    def decoded(_: float) -> tuple[int, float]:
        started = time.perf_counter()
        found = _read_json(ours, "bulk-read")
        elapsed = time.perf_counter() - started
        assert [record.data.n for record in found] == list(range(1, count + 1))
        return count, elapsed

    return compare(
        session,
        AREA,
        name,
        Contender("Arrow", arrow),
        Contender("JSON diff", decoded),
        times_peer(3.0),
        note="both read over one connection and in full; checks come after the clock has stopped",
    )


def _scan(ours: Topics, name: str) -> pa.Table:
    with ours.connection() as send:
        body = send(http_request(f"/v0/topics/{name}/scan", b"{}"))
    return pa.ipc.open_stream(body).read_all()


def _check(table: pa.Table) -> None:
    seqs = table.column("seq").to_numpy()
    assert (seqs[1:] == seqs[:-1] + 1).all()
    texts = table.column("data").to_pylist()
    assert len(texts[0]) == PAYLOAD_BYTES
    assert texts[0] == compact(payload(1)).decode()
    assert texts[-1] == compact(payload(len(texts))).decode()


def _read_json(ours: Topics, name: str) -> list[_Record]:
    """The fastest JSON way there is: pages of the largest size, decoded straight into structs."""
    found: list[_Record] = []
    cursor, caught_up = 0, False
    with ours.connection() as send:
        while not caught_up:
            page = _diff.decode(send(ours.read(name, cursor, 1000, COMPACT)))
            found += page.records
            cursor, caught_up = page.next_from_seq, page.caught_up
    return found
