"""Writes that arrive as Arrow columns: checked and rendered a column at a time.

The rules are those of a JSON write. Whether every cell of `data` is one JSON value is asked of all cells at
once: decoded together they must give as many values, each exactly as long as its cell, so that no cell can
pass as two values or lean on its neighbour.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from topics import codec
from topics.codec import MANY_KEYS_BYTES, Write, check_meta_keys
from topics.core import (
    FIELDS,
    MAX_BULK_RECORDS,
    MAX_META_BYTES,
    MAX_RECORD_BYTES,
    ApiError,
    invalid,
    names_of,
)
from topics.log.write.arrow_messages import unfolded_size, unfolds_to_too_much

# The columns that are read; any other is passed over.
_TEXTS = ("topic", *(field.name for field in FIELDS), "data", "meta")
_SPACE = " \n\t\r"
# Cells are checked, or rendered, this many at a time, or so many bytes: the joined text then stays in the
# processor's cache, and other threads get their turn in between.
PIECE_CELLS = 4096
_PIECE_BYTES = 1024 * 1024
_elements = msgspec.json.Decoder(list[Raw])
# Objects, arrays and strings need nothing between them to be told apart.
_one_by_one = msgspec.json.Decoder(Raw).decode_lines
_encode = msgspec.json.encode


def _text(value: str | None) -> pa.Scalar:
    # With its type: left to itself, pyarrow looks for pandas every time it has to guess one.
    return pa.scalar(value, pa.string())


_COMMA, _NULL = _text(","), _text("null")
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError)


@dataclass(slots=True)
class Cells:
    """Checked columns, as plain text: `data` without nulls, the others None when no row has one."""

    data: pa.Array
    metas: pa.Array | None
    # One for each of `FIELDS`.
    names: Sequence[pa.Array | None]


def read_stream(body: bytes, max_bytes: int, size: int | None = None) -> Iterator[pa.RecordBatch]:
    """The record batches of an Arrow stream, each safe to work with; raises for bytes that are not one.

    Buffers may be compressed and values may be referred to many times; the ceiling holds for what all of that
    unfolds to, and is known to hold before anything unfolds. `size`: what its messages say, if that is known.
    """
    if size is None:
        size, _ = unfolded_size(body, max_bytes)
    try:
        with pa.ipc.open_stream(body) as reader:
            for batch in reader:
                batch.validate(full=True)
                size += sum(_referred_to(batch, name) for name in _TEXTS)
                if size > max_bytes:
                    raise unfolds_to_too_much(max_bytes)
                yield batch
    except _UNREADABLE as error:
        raise invalid(f"body is not a valid Arrow stream: {error}") from None


def _referred_to(batch: pa.RecordBatch, name: str) -> int:
    """What a column grows by when every row gets a text of its own."""
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        return 0  # not there, or refused later on
    column = batch.column(places[0])
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        lengths = _text_lengths(column.dictionary)
        return int(lengths[column.indices.drop_null().to_numpy()].sum(dtype=np.int64))
    if _is_view(column.type):
        return max(int(_text_lengths(column).sum(dtype=np.int64)) - int(column.nbytes), 0)
    return 0


def _text_lengths(texts: pa.Array) -> np.ndarray:
    if not _is_view(texts.type):
        return np.asarray(pc.binary_length(texts).fill_null(0))
    # A view is 16 bytes, of which the first four are the length; what stands there for a null means nothing.
    lengths = _numbers(texts.buffers()[1])[::4][texts.offset : texts.offset + len(texts)]
    return np.where(texts.is_valid().to_numpy(zero_copy_only=False), lengths, 0)


def column_names(body: bytes) -> list[str]:
    """What an Arrow stream calls its columns."""
    try:
        with pa.ipc.open_stream(body) as reader:
            names: list[str] = reader.schema.names
            return names
    except _UNREADABLE as error:
        raise invalid(f"body is not a valid Arrow stream: {error}") from None


def check_stream(body: bytes, max_bytes: int, size: int | None = None) -> list[Write]:
    """All batches of a stream, or the first reason why one of them cannot be written."""
    batches = []
    for index, batch in enumerate(read_stream(body, max_bytes, size)):
        try:
            batches.append(check_batch(batch))
        except ApiError as error:
            raise ApiError(error.code, f"record batch {index}: {error.message}") from None
    return batches


def check_batch(batch: pa.RecordBatch) -> Write:
    """The records of a batch, ready to be appended."""
    return write_of(check_cells(batch))


def write_of(cells: Cells) -> Write:
    """The records of checked columns, ready to be appended."""
    metas = None if cells.metas is None else pc.cast(cells.metas, pa.binary()).to_pylist()
    names = names_of([None if column is None else _names(column) for column in cells.names])
    write = codec.from_columns(_buffer(cells.data), _offsets(cells.data), metas, names, checked=True)
    assert write is not None
    return write


def check_cells(batch: pa.RecordBatch) -> Cells:
    """The columns of a batch, or the first reason why they cannot be written."""
    if batch.num_rows > MAX_BULK_RECORDS:
        raise ApiError("batch_too_large", f"at most {MAX_BULK_RECORDS} rows fit in one record batch")
    data = text_column(batch, "data")
    if data is None or data.null_count:
        raise invalid("data is required in every row (a JSON null is the text null)")
    names = [text_column(batch, field.name) for field in FIELDS]
    metas = text_column(batch, "meta")
    for field, column in zip(FIELDS, names, strict=True):
        _check_lengths(column, field.name, field.max_bytes)
    if metas is not None:
        metas = _check_metas(metas)
    data = compact(data, "data")
    sizes = pc.binary_length(data)
    if metas is not None:
        sizes = pc.add(sizes, pc.binary_length(metas).fill_null(0))
    if len(sizes) and pc.max(sizes).as_py() > MAX_RECORD_BYTES:
        row = int(np.argmax(sizes.to_numpy() > MAX_RECORD_BYTES))
        raise ApiError(
            "record_too_large", f"row {row}: data and meta together exceed {MAX_RECORD_BYTES} bytes"
        )
    return Cells(data, metas, names)


def text_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column as UTF-8 text; None when it is not there or holds nothing but nulls."""
    places = batch.schema.get_all_field_indices(name)
    if not places:
        return None
    if len(places) > 1:
        raise invalid(f"there are {len(places)} columns named {name}")
    column = batch.column(places[0])
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        column = column.dictionary_decode()
    if column.null_count == len(column) and len(column):
        return None
    if not _is_text(column.type):
        raise invalid(f"column {name} must be text, not {column.type}")
    if column.type == pa.string():
        return column
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid as error:
        raise invalid(f"column {name}: {error}") from None


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or _is_view(kind)
    )


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def compact(cells: pa.Array, what: str) -> pa.Array:
    """The same JSON values without insignificant white space; raises for a cell that is not one value."""
    pieces = []
    for start, stop in piece_bounds(cells):
        piece = cells.slice(start, stop - start)
        compacted = _compacted(piece)
        if compacted is None:
            raise _not_json(piece, start, what)
        pieces.append(compacted)
    return cells if len(cells) == 0 else pieces[0] if len(pieces) == 1 else _concatenated(cells, pieces)


def piece_bounds(cells: pa.Array) -> Iterator[tuple[int, int]]:
    """Where to cut cells into pieces that hold nobody up: the first of each, and one past its last."""
    offsets = _offsets(cells)
    start = 0
    while start < len(cells):
        full = int(np.searchsorted(offsets, offsets[start] + _PIECE_BYTES))
        end = min(max(full, start + 1), start + PIECE_CELLS, len(cells))
        yield start, end
        start = end


def _are_values(cells: pa.Array) -> bool:
    """Whether each cell is one JSON value without insignificant white space."""
    write = codec.from_columns(_buffer(cells), _offsets(cells), None, (), checked=False)
    return write is not None


def _compacted(cells: pa.Array) -> pa.Array | None:
    """None when some cell is not one JSON value."""
    if len(cells) and _are_values(cells):
        return cells
    offsets = _offsets(cells)
    text = bytes(_values(cells))
    # Asked by byte value: four times faster than by one-byte string.
    has_space = 32 in text or 10 in text or 9 in text or 13 in text
    if not has_space and _are_elements(_one_by_one, text, np.diff(offsets)):
        return cells
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(cells)], pa.int32()), cells), _COMMA)
    text = b"".join((b"[", _values(joined), b"]"))
    trimmed = pc.ascii_trim(cells, _SPACE) if has_space else cells
    if not _are_elements(_elements.decode, text, pc.binary_length(trimmed).to_numpy()):
        return None
    shorter = msgspec.json.format(text, indent=-1) if has_space else text
    if len(shorter) == len(text):
        return cells  # there is space inside strings only
    return pa.array(list(map(bytes, _elements.decode(shorter))), pa.binary()).cast(pa.string())


def _are_elements(decode: Callable[[bytes], list[Raw]], text: bytes, lengths: np.ndarray) -> bool:
    """Whether the text consists of JSON values of these lengths."""
    try:
        elements = decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return len(elements) == len(lengths) and np.array_equal(
        np.fromiter(map(len, elements), np.int32, len(elements)), lengths
    )


def _concatenated(cells: pa.Array, pieces: list[pa.Array]) -> pa.Array:
    """As one array again; without a copy where nothing was changed."""
    is_same = sum(map(_total, pieces)) == _total(cells)
    return cells if is_same else pa.concat_arrays(pieces)


def _not_json(cells: pa.Array, first_row: int, what: str) -> ApiError:
    for row, cell in enumerate(cells.to_pylist(), first_row):
        try:
            count = len(_elements.decode(b"[%b]" % cell.encode()))
        except RecursionError:
            return invalid(f"row {row}: {what} is nested too deeply")
        except msgspec.DecodeError as error:
            return invalid(f"row {row}: {what} is not valid JSON: {error}")
        if count != 1:
            return invalid(f"row {row}: {what} is not valid JSON: it is {count} values")
    raise AssertionError("cells that are valid one by one are valid together")


def _check_metas(metas: pa.Array) -> pa.Array | None:
    """Metas as compact objects, a JSON null counting as absent."""
    present = metas.is_valid()
    texts = compact(metas.drop_null(), "meta")
    if metas.null_count:
        metas = pc.replace_with_mask(metas, present, texts)
    else:
        metas = texts
    metas = pc.if_else(pc.equal(metas, _NULL), _text(None), metas)
    if metas.null_count == len(metas):
        return None
    if not pc.all(pc.starts_with(metas, "{")).as_py():
        raise invalid("meta must be an object in every row that has one")
    _check_lengths(metas, "meta", MAX_META_BYTES)
    for text in metas.filter(pc.greater(pc.binary_length(metas), MANY_KEYS_BYTES)).to_pylist():
        check_meta_keys(text.encode(), "meta")
    return metas


def _check_lengths(column: pa.Array | None, name: str, maximum: int) -> None:
    if column is not None and (pc.max(pc.binary_length(column)).as_py() or 0) > maximum:
        raise invalid(f"{name} must be at most {maximum} bytes in every row")


def _offsets(strings: pa.Array) -> memoryview:
    """Where each element begins in the buffer of values, and where the last one ends."""
    return _numbers(strings.buffers()[1])[strings.offset : strings.offset + len(strings) + 1].data


def _numbers(buffer: pa.Buffer) -> np.ndarray:
    """All that are whole: a sender may say that it is a few bytes longer."""
    return np.frombuffer(buffer, np.int32, buffer.size // 4)


def _buffer(strings: pa.Array) -> Any:
    """The buffer that the offsets of these strings point into."""
    values = strings.buffers()[2]
    return b"" if values is None else values


def _values(strings: pa.Array) -> memoryview:
    """The text of all elements, one behind the other."""
    offsets, values = _offsets(strings), strings.buffers()[2]
    return memoryview(b"" if values is None else values)[offsets[0] : offsets[-1]]


def _total(strings: pa.Array) -> int:
    return pc.sum(pc.binary_length(strings)).as_py() or 0


def _names(column: pa.Array) -> list[str | None]:
    """One Python string per distinct name, however many rows have it."""
    encoded = column.dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), None]
    return [names[code] for code in encoded.indices.fill_null(-1).to_numpy().tolist()]
