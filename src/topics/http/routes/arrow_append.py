"""Bulk writes over HTTP: an Arrow stream, each record batch of which is written whole or not at all."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from topics.core import FIELDS, ApiError, OutcomeUnknown, UnknownFields, invalid
from topics.flow.large_appends import append_large, is_large
from topics.http.admission.auth import WRITE
from topics.http.exchange import Exchange
from topics.http.response_heads import ARROW
from topics.http.routes.service import Service, answer, load, routes
from topics.http.routing import Body
from topics.log import Append, AppendOp, Topic, check_key

if TYPE_CHECKING:
    from topics.codec import Write


# Decoding more than this would hold up all other requests, so it is left to a thread.
INLINE_BYTES = 256 * 1024
INLINE_BATCHES = 64
COLUMNS = ("data", *(field.name for field in FIELDS), "meta")


@routes.add(
    "POST",
    "/v0/topics/:topic/append",
    scopes=WRITE,
    body=Body.REQUIRED,
    arrow=True,
    query=("create", "idempotency_key"),
)
async def append(service: Service, exchange: Exchange) -> None:
    require_arrow(exchange)
    named, header = exchange.query("idempotency_key"), exchange.headers.get(b"idempotency-key")
    key = named.encode() if named is not None else None if header is None else header.strip(b" \t")
    if key is not None:
        check_key(key)
    batches = await checked_batches(exchange, service.settings.max_body_bytes)
    if not any(batch.count for batch in batches):
        raise invalid("the stream holds no rows")
    await BulkAppend(service, exchange, key).run(batches)


_NOTHING = {"first_seq": None, "last_seq": None, "count": 0, "deduped": False}
# The topic, the first seq, the number of records, and what committed them: None for a repeated batch.
Result: TypeAlias = tuple[Topic, int, int, AppendOp | None]


class BatchAppend(Append):
    """The append of one record batch."""

    __slots__ = ("result",)

    def __init__(
        self,
        name: str,
        write: "Write",
        key: bytes | None,
        create: bool | None,
        unknown_fields: UnknownFields | None,
    ) -> None:
        super().__init__(name, write=write, key=key, create=create, unknown_fields=unknown_fields)
        # Whoever waits for it may be cancelled, because the server stops.
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def committed(
        self, topic: Topic, first_seq: int, count: int, with_seqs: bool, op: AppendOp | None
    ) -> None:
        if not self.result.done():
            self.result.set_result((topic, first_seq, count, op))

    def fail(self, error: ApiError) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class BulkAppend:
    """One bulk append: every record batch is admitted like a JSON append, and has a result of its own."""

    def __init__(self, service: Service, exchange: Exchange, key: bytes | None) -> None:
        self._service = service
        self._exchange = exchange
        self._key = key
        self._create = create_flag(exchange)
        # Batches on their way to disk.
        self._submitted: list[tuple[int, BatchAppend]] = []
        self._results: list[dict[str, Any]] = []
        self._created = False
        self._head_seq = self._epoch = 0
        self._wal_ms = self._fsync_ms = 0.0

    async def run(self, batches: "list[Write]") -> None:
        refusal: ApiError | None = None
        for index, write in enumerate(batches):
            if write.count:
                try:
                    await self._append(index, write)
                except ApiError as error:
                    refusal = error
                    break
            # Encoding is work for the processor: others get their turn between two batches.
            await asyncio.sleep(0)
        self._results = [_NOTHING for _ in batches]
        for index, request in self._submitted:
            try:
                self._note(index, request, *await request.result)
            except OutcomeUnknown:
                raise
            except ApiError as error:
                refusal = refusal or error
        if refusal is not None:
            raise self._refused(refusal)
        self._answer()

    async def _append(self, index: int, write: "Write") -> None:
        service, exchange = self._service, self._exchange
        # The index is part of the key: a retry repeats exactly the batches that were committed.
        key = None if self._key is None else b"%b\0%d" % (self._key, index)
        request = BatchAppend(exchange.name, write, key, self._create, exchange.unknown_fields)
        # Load refuses the whole of it or nothing: with the first batch in, the rest only waits.
        is_patient = bool(self._submitted)
        is_new = service.engine.find(exchange.name) is None

        def submit() -> None:
            service.engine.append(request)
            # A refusal is known at once, so that no batch after the refused one is appended.
            service.engine.queue.assign_pending()

        if is_large(write.count, write.size):
            await append_large(service.engine, service.admission, request, [write], is_patient=is_patient)
        else:
            await service.admission.enter_in_turn(exchange.name, write.size, submit, is_patient=is_patient)
        if is_new or request.result.done():
            # The refusal of a request that creates its topic is known when the topic is committed.
            await request.result
        self._submitted.append((index, request))

    def _note(
        self, index: int, request: BatchAppend, topic: Topic, first_seq: int, count: int, op: AppendOp | None
    ) -> None:
        last_seq = first_seq + count - 1
        self._results[index] = {
            "first_seq": first_seq,
            "last_seq": last_seq,
            "count": count,
            "deduped": op is None,
        }
        self._head_seq = max(self._head_seq, last_seq)
        self._epoch = topic.id
        if op is not None:
            self._created |= op.created_by is request
            self._wal_ms += op.wal_ms
            self._fsync_ms = max(self._fsync_ms, op.fsync_ms if topic.config.durable else 0.0)

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


def require_arrow(exchange: Exchange) -> None:
    if not exchange.headers.get(b"content-type", b"").strip().lower().startswith(ARROW):
        raise ApiError("unsupported_media_type", f"the body must be declared as {ARROW.decode()}")


async def checked_batches(exchange: Exchange, max_bytes: int) -> "list[Write]":
    """Every batch of the body, all of them checked before the first one is written."""
    await load("topics.log.write.arrow_batch")
    from topics.log.write.arrow_batch import check_stream
    from topics.log.write.arrow_messages import unfolded_size

    def check() -> "list[Write]":
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

    exchange.note(UnknownFields.among(column_names(exchange.body), known))


def create_flag(exchange: Exchange) -> bool | None:
    if exchange.query("create") is None:
        return None
    return exchange.query_flag("create", True)
