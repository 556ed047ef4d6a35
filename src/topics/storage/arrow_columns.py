"""Stored columns as Arrow arrays, built without looking at a single record in Python.

`data` and `meta` lie inside the rows, with other text between them. Two offsets a record, its begin and its
end, make an Arrow string array over the rows as they are, in which every second element is the value we want
and the others are the text between; one `take` in C++ then copies only the values.

This is the one module of the package that imports pyarrow when it is itself imported, so import it late: a
server without requests for bulk data starts without paying for it.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from topics.codec.row_text import META_KEY
from topics.core import FIELDS
from topics.storage.columns import I64, CodedNames, Columns

TYPES = {
    "seq": pa.int64(),
    "ts": pa.timestamp("ms", tz="UTC"),
    **{field.name: pa.string() for field in FIELDS},
    "data": pa.string(),
    "meta": pa.string(),
}


def schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in names])


def record_batch(columns: Columns, wanted: I64, names: Sequence[str]) -> pa.RecordBatch:
    """The records at `wanted` (ascending, not empty), with the columns asked for, in the order asked for."""
    first, last = int(wanted[0]), int(wanted[-1])
    window = _window(columns, first, last + 1)
    indexes = wanted - first
    build: dict[str, Callable[[], pa.Array]] = {
        "seq": lambda: pa.array(indexes + window.base),
        "ts": lambda: pa.array(window.ts[indexes]).view(TYPES["ts"]),
        **{
            field.name: partial(_names, column, indexes)
            for field, column in zip(FIELDS, window.names, strict=True)
        },
        "data": lambda: _data(window, indexes),
        "meta": lambda: _meta(window, indexes),
    }
    return pa.RecordBatch.from_arrays([build[name]() for name in names], schema=schema(names))


def _window(columns: Columns, start: int, stop: int) -> Columns:
    """A stretch of the run, with offsets counted from its own first byte: they fit Arrow's 32 bits."""
    begin = columns.start_of(start)
    end = int(columns.ends[stop - 1])
    return Columns(
        columns.base + start,
        stop - start,
        memoryview(columns.rows)[begin:end],
        columns.ends[start:stop] - np.uint32(begin),
        None if columns.known_data_lens is None else columns.known_data_lens[start:stop],
        columns.ts[start:stop],
        meta_lens=None if columns.meta_lens is None else columns.meta_lens[start:stop],
        names=tuple(
            CodedNames(None if codes is None else codes[start:stop], names) for codes, names in columns.names
        ),
    )


def _data(window: Columns, indexes: I64) -> pa.Array:
    ends = window.data_ends()[indexes]
    return _cut(window, ends - window.data_lens[indexes], ends).take(_every_second(len(indexes)))


def _meta(window: Columns, indexes: I64) -> pa.Array:
    if window.meta_lens is None:
        return pa.nulls(len(indexes), pa.string())
    lengths = window.meta_lens[indexes].astype(np.int64)
    data_ends = window.data_ends()[indexes]
    begins = data_ends + np.where(lengths > 0, len(META_KEY), 0)
    chosen = pa.array(_every_second(len(indexes)), mask=lengths == 0)
    return _cut(window, begins, begins + lengths).take(chosen)


def _cut(window: Columns, begins: I64, ends: I64) -> pa.Array:
    offsets = np.empty(2 * len(begins), np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(window.rows)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _every_second(count: int) -> I64:
    return np.arange(0, 2 * count, 2)


def _names(column: CodedNames, indexes: I64) -> pa.Array:
    if column.codes is None:
        return pa.nulls(len(indexes), pa.string())
    return pa.array([None, *column.names], pa.string()).take(pa.array(column.codes[indexes]))
