"""Bulk reads over HTTP: a range of a topic as an Arrow stream."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import ApiError, invalid
from topics.http.admission.auth import READ, is_revoked
from topics.http.exchange import Exchange
from topics.http.response_heads import ARROW
from topics.http.routes.fields import node_set, unsigned, unsigned_or_none
from topics.http.routes.service import Service, load, routes, when_copied
from topics.http.routing import Body
from topics.log import parse_match

if TYPE_CHECKING:
    import pyarrow as pa

    from topics.log.read.scan import Scan, ScanRequest

# An answer up to this size is sent whole, and its connection goes on; a longer one is streamed.
WHOLE_BYTES = 4 * 1024 * 1024
# A filter may leave out nearly everything, so what was examined counts too.
WHOLE_RECORDS = 100_000


class ScanBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    from_seq: int = 0
    to_seq: int | UnsetType = UNSET
    columns: list[str] | None = None
    node: str | list[str] | None = None
    tag: str | list[object] | None = None
    since_ts: int | UnsetType = UNSET
    until_ts: int | UnsetType = UNSET
    max_records: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET


# The key of our metadata, in the schema and in record batches; the value is JSON.
METADATA_KEY = b"topics"


class _Pieces:
    """A file for pyarrow that keeps what is written until `take`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> int:
        # A copy: the buffer behind it may belong to a batch that is gone when these bytes are sent.
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return None

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ArrowStream:
    """Each call returns the bytes to send next."""

    def __init__(self, schema: "pa.Schema", about: dict[str, Any]) -> None:
        import pyarrow as pa

        self._pieces = _Pieces()
        self._schema = schema.with_metadata({METADATA_KEY: msgspec.json.encode(about)})
        self._writer = pa.ipc.new_stream(self._pieces, self._schema)

    def batch(self, batch: "pa.RecordBatch", about: dict[str, Any] | None = None) -> bytes:
        metadata = None if about is None else {METADATA_KEY: msgspec.json.encode(about)}
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._pieces.take()

    def end(self, about: dict[str, Any]) -> bytes:
        """A batch without rows that says how it went, and the end of the stream."""
        import pyarrow as pa

        empty = [pa.array([], kind) for kind in self._schema.types]
        last = self.batch(pa.RecordBatch.from_arrays(empty, schema=self._schema), about)
        self._writer.close()
        return last + self._pieces.take()


@routes.add(
    "POST",
    "/v0/topics/:topic/scan",
    scopes=READ,
    body=Body.OPTIONAL,
    accepts=ScanBody,
    enter=when_copied,
)
async def scan(service: Service, exchange: Exchange, body: ScanBody) -> None:
    await load("topics.log.read.scan")
    from topics.log.read.scan import Scan

    request = _request(body)
    topic = service.topic_to_read(exchange)
    found = Scan(service.engine, topic, request)
    stream = ArrowStream(found.schema, _about(found))
    piece = _next(found, stream)
    while not found.finished and len(piece) < WHOLE_BYTES and found.scanned < WHOLE_RECORDS:
        piece += _next(found, stream)
    if found.finished:
        exchange.reply(piece + stream.end(_outcome(found)), content_type=ARROW)
    else:
        await _send(exchange, found, stream, piece)


def _request(body: ScanBody) -> "ScanRequest":
    from topics.log.read.scan import COLUMN_NAMES, ScanRequest

    columns: tuple[str, ...] = COLUMN_NAMES
    if body.columns is not None:
        unknown = sorted(set(body.columns) - set(COLUMN_NAMES))
        if unknown or not body.columns:
            raise invalid(f"columns must be some of {', '.join(COLUMN_NAMES)}")
        columns = tuple(name for name in COLUMN_NAMES if name in body.columns)
    return ScanRequest(
        from_seq=unsigned(body.from_seq, "from_seq"),
        to_seq=unsigned_or_none(body.to_seq, "to_seq"),
        columns=columns,
        nodes=node_set(body.node),
        match=None if body.tag is None else parse_match(body.tag),
        since_ts=unsigned_or_none(body.since_ts, "since_ts"),
        until_ts=unsigned_or_none(body.until_ts, "until_ts"),
        max_records=unsigned_or_none(body.max_records, "max_records") or None,
        epoch=unsigned_or_none(body.epoch, "epoch"),
    )


def _about(scan: "Scan") -> dict[str, Any]:
    topic = scan.topic
    return {
        "topic": topic.name,
        "epoch": topic.id,
        "head_seq": scan.head_seq,
        "earliest_seq": scan.earliest_seq,
        "loss_line": scan.loss_line,
        "seq_base": topic.seq_base,
        "now": scan.now,
    }


def _outcome(scan: "Scan") -> dict[str, Any]:
    return {
        "next_from_seq": scan.position,
        "caught_up": scan.caught_up,
        "complete": True,
        "scanned": scan.scanned,
    }


def _next(scan: "Scan", stream: ArrowStream) -> bytes:
    piece = scan.step()
    if piece is None:
        return b""
    gap = piece.tombstone
    scan.topic.totals.served("scan", piece.batch.num_rows)
    if gap is not None:
        scan.topic.totals.told(scan.topic.name, gap.reason, gap.missed_estimate)
    return stream.batch(piece.batch, None if gap is None else {"tombstone": gap})


async def _send(exchange: Exchange, scan: "Scan", stream: ArrowStream, body: bytes) -> None:
    """Piece by piece, as fast as the client takes them, and never for long without letting others run."""
    out = exchange.open_stream(ARROW)
    try:
        while not out.closed:
            if is_revoked(exchange.key):
                out.abort()
                return
            await out.write_and_drain(body)
            if scan.finished:
                out.write(stream.end(_outcome(scan)))
                out.close()
                return
            # Others get their turn even while the client is faster than we are.
            await asyncio.sleep(0)
            body = _next(scan, stream)
    except ApiError:
        # Too late for an error answer. A body that breaks off is one: the client misses the last batch.
        out.abort()
