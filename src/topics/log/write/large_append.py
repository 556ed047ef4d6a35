"""A write whose body is large: decoded and rendered in pieces beside the loop, and written as one.

Each piece is a write of its own to all that decodes, checks and renders. Joined they are one batch again,
with one frame in the journal.
"""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from topics.log.write.ahead_batch import AheadBatch, joined
from topics.log.write.append_form import (
    AppendBody,
    OnlyRecords,
    cut_whole,
    decode_append,
    too_many,
)
from topics.log.write.append_frame import CutBatch
from topics.log.write.append_request import AppendRequest, check_append, record_too_large
from topics.log.write.batch import Batch
from topics.log.write.idempotency import checked_key
from topics.log.write.large_json import Cut, ItemLimits, cut_out
from topics.values import MAX_BATCH_RECORDS, MAX_RECORD_BYTES, ApiError, Misnamed, Note, invalid

Item = TypeVar("Item")
Decode = Callable[[bytes, Note], AppendBody | OnlyRecords]

# What a record may take beside its data and meta, in whichever way its tag and node are spelled.
_AROUND_RECORD = 16 * 1024
_LIMITS = ItemLimits(MAX_BATCH_RECORDS, too_many, MAX_RECORD_BYTES + _AROUND_RECORD, record_too_large)
_INDEX = re.compile(r"records\[(\d+)\]")
_encode = msgspec.json.encode


class LargeBatch(AheadBatch):
    """Batches that are one behind the other."""

    __slots__ = ("_parts", "is_quick")

    def __init__(self, parts: list[Batch]) -> None:
        self._parts = parts
        self.count = sum(part.count for part in parts)
        self.size = sum(part.size for part in parts)
        self.ends = None
        self.data_lens = array("I")
        for part in parts:
            self.data_lens.extend(part.data_lens)
        self.meta_lens = _joined([(part.meta_lens, part.count) for part in parts], 0)
        self.nodes = _joined([(part.nodes, part.count) for part in parts], None)
        self.tags = _joined([(part.tags, part.count) for part in parts], None)
        self.is_quick = len(parts) == 1 and isinstance(parts[0], CutBatch)
        super().__init__()

    def render_now(self, first_seq: int, ts: int) -> bytes | memoryview:
        texts, ends, size = [], [], 0
        for part in self._parts:
            rows = part.render(first_seq, ts)
            ends.append(part.row_ends(rows) + np.uint32(size))
            texts.append(rows)
            first_seq += part.count
            size += len(rows)
            self.prepared = part.prepared
            part.forget_prepared()
        self.ends = np.concatenate(ends)
        if len(texts) == 1:
            return texts[0]
        self.prepared = None  # it was for a part, and one payload serves them all
        return joined(texts)

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        assert self.ends is not None
        return self.ends


def _joined(columns: "list[tuple[Sequence[Item] | None, int]]", nothing: Item) -> list[Item] | None:
    if all(column is None for column, _ in columns):
        return None
    joined: list[Item] = []
    for column, count in columns:
        joined += [nothing] * count if column is None else column
    return joined


class Writer(Protocol):
    """Who sent it: told of names that do not belong there."""

    misnamed: Misnamed | None

    def note(self, misnamed: Misnamed) -> None: ...


def large_request(body: bytes, key_header: bytes | None, writer: Writer) -> tuple[AppendRequest, bool]:
    """What `check_append` makes of a body, and whether the write is patient. For a thread beside the loop."""
    # The accelerator lets others run meanwhile, and needs no pieces.
    found = cut_whole(body)
    if found is None:
        return request_of(cut_records(body), key_header, writer, decode_append)
    key = None if key_header is None else checked_key(None, key_header)
    return AppendRequest(LargeBatch([CutBatch(found)]), AppendBody(), key), False


def cut_records(body: bytes) -> Cut:
    return cut_out(body, "records", _LIMITS)


def request_of(
    cut: Cut, key_header: bytes | None, writer: Writer, decode: Decode
) -> tuple[AppendRequest, bool]:
    """The same for a body that was cut already; `decode` knows its form."""
    request = _as_request(decode(cut.around, writer.note))
    if cut.too_many is not None:
        raise cut.too_many
    if not cut.pieces and cut.too_large is None:
        return check_append(request, len(cut.around), key_header), request.disable_backpressure
    key = None
    if key_header is not None or request.idempotency_key is not None:
        key = checked_key(request.idempotency_key, key_header)
    batches = list(_batches(cut, request.node, writer))
    if cut.too_large is not None:
        raise cut.too_large
    batch = LargeBatch(batches)
    return AppendRequest(batch, request, key), request.disable_backpressure


def _as_request(decoded: AppendBody | OnlyRecords) -> AppendBody:
    if isinstance(decoded, AppendBody):
        return decoded
    return AppendBody(records=decoded)


def _batches(cut: Cut, node: str | None, writer: Writer) -> Iterator[Batch]:
    begins = b'{"records":[' if node is None else b'{"node":%b,"records":[' % _encode(node)
    first = 0
    is_noted = False

    def note(misnamed: Misnamed) -> None:
        nonlocal is_noted
        is_noted = True
        writer.note(misnamed)

    for items, count in cut.pieces:
        text = begins + items + b"]}"
        try:
            batch = check_append(decode_append(text, note), len(text), None).batch
        except ApiError as error:
            raise _from_the_start(error, first) from None
        if batch.count != count:
            raise invalid("body is not valid JSON: a comma at the end of an array")
        yield batch
        if is_noted and writer.misnamed is not None:
            return  # refused for that: to look for more would take far longer than a write does
        first += count


def _from_the_start(error: ApiError, first: int) -> ApiError:
    """Of the piece that begins with this record."""
    message = _INDEX.sub(lambda found: f"records[{int(found[1]) + first}]", error.message)
    return ApiError(error.code, message, error.detail)
