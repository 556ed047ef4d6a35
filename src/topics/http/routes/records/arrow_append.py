"""Bulk writes over HTTP: an Arrow stream, each record batch of which is written whole or not at all."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from topics.flow.large_writes import get_ready
from topics.http.door.keys import WRITE
from topics.http.late_imports import load
from topics.http.routes.service import Service, answer
from topics.http.wire.answer_heads import ARROW
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log import LARGE_BYTES, AppendOp, AppendRequest, checked_key, column_request
from topics.values import ApiError, Misnamed, OutcomeUnknown, invalid

if TYPE_CHECKING:
    from topics.log.write.arrow_batch import ColumnBatch


# Decoding more than this would hold up all other requests, so it is left to a thread.
INLINE_BYTES = 256 * 1024
INLINE_BATCHES = 64
COLUMNS = ("data", "tag", "node", "meta")


class BulkAppendRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v0/topics/:topic/append",
                self.append,
                scopes=WRITE,
                body=Body.REQUIRED,
                arrow=True,
                query=("create", "idempotency_key"),
            )
        ]

    async def append(self, exchange: Exchange) -> None:
        require_arrow(exchange)
        named, header = exchange.query("idempotency_key"), exchange.header(b"idempotency-key")
        key = None if named is None and header is None else checked_key(named, header)
        batches = await checked_batches(exchange, self._service.settings.max_body_bytes)
        if not any(batch.count for batch in batches):
            raise invalid("the stream holds no rows")
        await BulkAppend(self._service, exchange, key).run(batches)


class BulkAppend:
    """One bulk write: every batch goes through the same door as a JSON write, and is answered for in turn."""

    def __init__(self, service: Service, exchange: Exchange, key: bytes | None) -> None:
        self._service = service
        self._exchange = exchange
        self._key = key
        self._create = create_flag(exchange)
        # Batches on their way to disk, and their answers.
        self._submitted: list[tuple[int, asyncio.Future[AppendOp]]] = []
        self._results: list[dict[str, Any]] = []
        self._created = False
        self._head_seq = self._epoch = 0
        self._wal_ms = self._fsync_ms = 0.0

    async def run(self, batches: "list[ColumnBatch]") -> None:
        doors, name = self._service.doors, self._exchange.name
        refusal: ApiError | None = None
        for index, batch in enumerate(batches):
            if batch.count:
                request = self._request(index, batch)
                # Load refuses the whole of it or nothing: with the first batch in, the rest only waits.
                patient = bool(self._submitted)
                try:
                    if batch.size > LARGE_BYTES:
                        await get_ready(self._service.engine, doors, name, request, patient=patient)
                        self._submit(index, request)
                    else:
                        submit = partial(self._submit, index, request)
                        await doors.append_in_turn(name, batch.size, submit, patient=patient)
                except ApiError as error:
                    refusal = error
                    break
            # Rendering is work for the processor: others get their turn between two batches.
            await asyncio.sleep(0)
        self._results = [_result(None) for _ in batches]
        for index, done in self._submitted:
            try:
                self._note(index, await done)
            except OutcomeUnknown:
                raise
            except ApiError as error:
                refusal = refusal or error
        if refusal is not None:
            raise self._refused(refusal)
        self._answer()

    def _request(self, index: int, batch: "ColumnBatch") -> AppendRequest:
        # The index is part of the identity: a retry repeats exactly the batches that were committed.
        key = None if self._key is None else b"%b\0%d" % (self._key, index)
        return column_request(batch, create=self._create, idempotency_key=key)

    def _submit(self, index: int, request: AppendRequest) -> None:
        done: asyncio.Future[AppendOp] = asyncio.get_running_loop().create_future()
        exchange = self._exchange
        self._service.append(
            exchange.name, request, exchange.key, settler(done), refuser(done), exchange.misnamed
        )
        self._submitted.append((index, done))

    def _note(self, index: int, op: AppendOp) -> None:
        self._results[index] = _result(op)
        self._created = self._created or op.created
        self._head_seq = max(self._head_seq, op.head_seq)
        assert op.topic is not None
        self._epoch = op.topic.id
        self._wal_ms += op.wal_ms
        if op.topic.config.durable:
            self._fsync_ms = max(self._fsync_ms, op.fsync_ms)

    def _refused(self, refusal: ApiError) -> ApiError:
        """What was committed before the refusal stays, so the caller is told what that is."""
        detail = {**(refusal.detail or {}), "batches": [r for r in self._results if r["count"]]}
        return ApiError(refusal.code, refusal.message, detail, retry_after_s=refusal.retry_after_s)

    def _answer(self) -> None:
        body = {
            "topic": self._exchange.name,
            "epoch": self._epoch,
            "batches": self._results,
            "head_seq": self._head_seq,
            "count": sum(result["count"] for result in self._results),
            "created": self._created,
        }
        answer(
            self._exchange,
            body,
            201 if self._created else 200,
            wal_append_ms=round(self._wal_ms, 3),
            fsync_ms=round(self._fsync_ms, 3),
        )


def settler(done: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Sets the result unless the one who waited was cancelled meanwhile (the server stops)."""
    return lambda result: None if done.done() else done.set_result(result)


def refuser(done: asyncio.Future[Any]) -> Callable[[ApiError], None]:
    return lambda error: None if done.done() else done.set_exception(error)


def _result(op: AppendOp | None) -> dict[str, Any]:
    if op is None:
        return {"first_seq": None, "last_seq": None, "count": 0, "deduped": False}
    return {"first_seq": op.first_seq, "last_seq": op.last_seq, "count": op.count, "deduped": op.deduped}


def require_arrow(exchange: Exchange) -> None:
    if not (exchange.header(b"content-type") or b"").strip().lower().startswith(ARROW):
        raise ApiError("unsupported_media_type", f"the body must be declared as {ARROW.decode()}")


async def checked_batches(exchange: Exchange, max_bytes: int) -> "list[ColumnBatch]":
    """Every batch of the body, all of them checked before the first one is written."""
    await load("topics.log.write.arrow_batch")
    from topics.log.write.arrow_batch import check_stream
    from topics.log.write.arrow_messages import unfolded_size

    def check() -> "list[ColumnBatch]":
        note_columns(exchange, COLUMNS)
        return check_stream(exchange.body, max_bytes)

    if len(exchange.body) > INLINE_BYTES:
        return await asyncio.to_thread(check)
    note_columns(exchange, COLUMNS)
    size, batches = unfolded_size(exchange.body, max_bytes)
    if size <= INLINE_BYTES and batches <= INLINE_BATCHES:
        return check_stream(exchange.body, max_bytes, size)
    return await asyncio.to_thread(check_stream, exchange.body, max_bytes, size)


def note_columns(exchange: Exchange, known: Collection[str]) -> None:
    """Columns are to rows what keys are to records. Import the reader of streams first.

    Not on the loop, if the body is large: it may name a hundred thousand of them.
    """
    from topics.log.write.arrow_batch import column_names

    unknown = [name for name in column_names(exchange.body) if name not in known]
    if unknown:
        misnamed = Misnamed()
        misnamed.note_unknown(unknown, known)
        exchange.note(misnamed)


def create_flag(exchange: Exchange) -> bool | None:
    if exchange.query("create") is None:
        return None
    return exchange.query_flag("create", True)
