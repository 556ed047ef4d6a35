"""Reads topics as Arrow tables, and appends tables. Needs pyarrow, an optional dependency."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import msgspec

from topics.client.encoding import encode_json
from topics.client.errors import Refused
from topics.client.operations.pages import TombstoneReply
from topics.client.operations.reading import ColumnArguments, IgnoredLosses, check_names, check_ways_past
from topics.client.operations.settings import WantedTopic
from topics.client.records import Ack, Restarted
from topics.client.wire.requests import WireRequest
from topics.client.wire.session import Session, decode_or_refuse, topic_path

ARROW = "application/vnd.apache.arrow.stream"
# Columns of `to_arrow` that the server assigns.
_GIVEN_BY_THE_SERVER = ("seq", "ts")
_NOTES = b"topics"
# The rows of one batch are written together. A request has several batches.
BATCH_ROWS = 10_000
REQUEST_BYTES = 16 << 20


class _Notes(msgspec.Struct, gc=False):
    """The metadata of a stream, or of one batch in it."""

    epoch: int = 0
    tombstone: TombstoneReply | None = None
    complete: bool = False


class _WrittenColumn(msgspec.Struct, gc=False):
    first_seq: int | None
    last_seq: int | None
    count: int
    deduped: bool


class _Answer(msgspec.Struct, gc=False):
    topic: str
    epoch: int
    batches: list[_WrittenColumn]


_decode_notes = msgspec.json.Decoder(_Notes).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


def needed(module: str) -> Any:
    """Import an optional library; the error says what to install."""
    try:
        return import_module(module)
    except ImportError:
        more = "" if module == "pyarrow" else f" {module}"
        raise ImportError(f"{module} is needed here: pip install 'topics-log[arrow]'{more}") from None


class ReplyColumns:
    def __init__(self, session: Session, topic: str, wanted: WantedTopic, ignored: IgnoredLosses) -> None:
        self._session = session
        self._topic = topic
        self._wanted = wanted
        self._ignored = ignored

    # --- reading ----------------------------------------------------------------------------------------

    async def read(self, options: ColumnArguments) -> Any:
        """Read all records after `from_seq` as a table. A loss is raised, or passed as the options say."""
        pa = needed("pyarrow")
        check_names(ColumnArguments, options)
        check_ways_past(options.get("on_loss"), options.get("ignore_loss"))
        body = encode_json({"from_seq": options.get("from_seq") or 0})
        request = WireRequest(method="POST", target=topic_path(self._topic, "scan"), body=body)
        response = await self._session.fetch(request)
        stream = pa.ipc.open_stream(response.body)
        epoch = _notes(stream.schema.metadata).epoch
        batches = []
        for batch, notes in _batches(stream):
            if notes.tombstone is not None:
                await self._handle_loss(notes.tombstone, epoch, options)
            if batch.num_rows:
                batches.append(batch)
        return pa.Table.from_batches(batches, stream.schema.remove_metadata())

    async def _handle_loss(self, tombstone: TombstoneReply, epoch: int, options: ColumnArguments) -> None:
        loss = tombstone.loss(self._topic, epoch, None)
        on_loss, ignore_loss = options.get("on_loss"), options.get("ignore_loss")
        await self._ignored.pass_loss(self._session, loss, on_loss, ignore_loss)
        if isinstance(loss, Restarted) and tombstone.gap_to >= tombstone.gap_from:
            # The same tombstone also tells what the new incarnation has lost already.
            await self._handle_loss(msgspec.structs.replace(tombstone, reason="mixed"), epoch, options)

    # --- writing ----------------------------------------------------------------------------------------

    async def write(self, table: Any) -> Ack:
        pa = needed("pyarrow")
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise TypeError(f"write_arrow takes a pyarrow.Table, not {type(table).__name__}")
        table = table.drop_columns([name for name in _GIVEN_BY_THE_SERVER if name in table.column_names])
        if not table.num_rows:
            raise ValueError("the table has no rows")
        await self._wanted.ensure()
        written: list[_WrittenColumn] = []
        epoch = 0
        for body in _requests(pa, table):
            answer = await self._send(body)
            epoch = answer.epoch
            written += [batch for batch in answer.batches if batch.count]
        first, last = written[0].first_seq, written[-1].last_seq
        assert first is not None
        assert last is not None
        deduped = all(batch.deduped for batch in written)
        return Ack(self._topic, epoch, first, last, sum(batch.count for batch in written), deduped)

    async def _send(self, body: bytes) -> _Answer:
        key = self._session.new_key()
        query = {"idempotency_key": key, **({"create": "false"} if self._wanted.is_given else {})}
        target = f"{topic_path(self._topic)}/append?{urlencode(query)}"
        request = WireRequest(method="POST", target=target, body=body, content_type=ARROW)
        response = await self._session.write(self._topic, request, key)
        return decode_or_refuse(_decode_answer, response)


def _notes(metadata: Any) -> _Notes:
    return _decode_notes(metadata[_NOTES]) if metadata and _NOTES in metadata else _Notes()


def _batches(stream: Any) -> Iterator[tuple[Any, _Notes]]:
    while True:
        try:
            batch, metadata = stream.read_next_batch_with_custom_metadata()
        except StopIteration:
            # A complete stream ends with a mark. This one was cut off.
            raise Refused(200, "unknown", "the answer to a scan was cut off") from None
        notes = _notes(metadata)
        yield batch, notes
        if notes.complete:
            return


def _requests(pa: Any, table: Any) -> Iterator[bytes]:
    """The table as Arrow streams below the server's limits."""
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    while batches:
        size, count = 0, 0
        for batch in batches:
            if count and size + batch.nbytes > REQUEST_BYTES:
                break
            size, count = size + batch.nbytes, count + 1
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in batches[:count]:
                writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()
        batches = batches[count:]
