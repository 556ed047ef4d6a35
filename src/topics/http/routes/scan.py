"""Bulk reads over HTTP: a range of a topic as an Arrow stream."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import ApiError, invalid
from topics.http.admission.auth import READ, is_revoked
from topics.http.exchange import Exchange
from topics.http.late_imports import load
from topics.http.response_heads import ARROW
from topics.http.routes.fields import node_set, unsigned, unsigned_or_none
from topics.http.routes.service import Service
from topics.http.routing import Body, Route
from topics.log import parse_match

if TYPE_CHECKING:
    from topics.http.routes.arrow_stream import ArrowStream
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


class ScanRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v0/topics/:topic/scan",
                self.scan,
                scopes=READ,
                body=Body.OPTIONAL,
                accepts=ScanBody,
                enter=self._service.enter_with_copies,
            )
        ]

    async def scan(self, exchange: Exchange, body: ScanBody) -> None:
        await load("topics.http.routes.arrow_stream", "topics.log.read.scan")
        from topics.http.routes.arrow_stream import ArrowStream
        from topics.log.read.scan import Scan

        request = _request(body)
        self._service.topic(exchange)
        topic = self._service.admission.read(exchange.name)
        scan = Scan(self._engine, topic, request)
        stream = ArrowStream(scan.schema, _about(scan))
        piece = _next(scan, stream)
        while not scan.finished and len(piece) < WHOLE_BYTES and scan.scanned < WHOLE_RECORDS:
            piece += _next(scan, stream)
        if scan.finished:
            exchange.reply(piece + stream.end(_outcome(scan)), content_type=ARROW)
        else:
            await _send(exchange, scan, stream, piece)


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


def _next(scan: "Scan", stream: "ArrowStream") -> bytes:
    piece = scan.step()
    if piece is None:
        return b""
    gap = piece.tombstone
    scan.topic.totals.served("scan", piece.batch.num_rows)
    if gap is not None:
        scan.topic.totals.told(scan.topic.name, gap.reason, gap.missed_estimate)
    return stream.batch(piece.batch, None if gap is None else {"tombstone": gap})


async def _send(exchange: Exchange, scan: "Scan", stream: "ArrowStream", body: bytes) -> None:
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
