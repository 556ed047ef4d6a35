"""Arrow streams of records, and streams that are small on the wire and enormous when they are unpacked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

MIB = 1024 * 1024


def arrow_stream(*batches: dict[str, list[Any]]) -> bytes:
    """An Arrow stream of text columns."""
    records = [
        pa.RecordBatch.from_pydict({name: pa.array(values, pa.string()) for name, values in batch.items()})
        for batch in batches
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records[0].schema) as writer:
        for record in records:
            writer.write_batch(record)
    return sink.getvalue().to_pybytes()


def repeated(message_mib: int, times: int) -> bytes:
    """Repeat a compressed record batch, which has `message_mib` MiB and takes a few kilobytes."""
    rows = pa.array([b'"%b"' % (b"a" * (MIB // 2 - 2))] * (2 * message_mib), pa.binary())
    batch = pa.RecordBatch.from_arrays([rows], ["data"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    schema, message = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    end = bytes.fromhex("ffffffff00000000")
    assert whole.startswith(schema[:8])
    assert whole.endswith(end)
    assert len(message) > message_mib * MIB
    one = whole[len(schema) : -len(end)]
    return schema + one * times + end


def lying(declared: int) -> bytes:
    """A buffer that claims to decompress to `declared` bytes."""
    values = b'"%b"' % (b"b" * 7777)
    batch = pa.RecordBatch.from_arrays([pa.array([values], pa.binary())], ["data"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    # Before the magic number of zstd.
    true = len(values).to_bytes(8, "little") + bytes.fromhex("28b52ffd")
    assert body.count(true) == 1
    return body.replace(true[:8], declared.to_bytes(8, "little", signed=True))


def dictionary(value_bytes: int, rows: int) -> bytes:
    """One long value to which all rows refer."""
    indices = pa.array([0] * rows, pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(['"%s"' % ("c" * value_bytes)]))
    return _uncompressed(column)


def views(value_bytes: int, rows: int) -> bytes:
    """One long text to which the views of all rows refer, with 16 bytes each."""
    text = b'"%b"' % (b"d" * (value_bytes - 2))
    view = len(text).to_bytes(4, "little") + text[:4] + bytes(8)
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(text)]
    return _uncompressed(pa.Array.from_buffers(pa.string_view(), rows, buffers))


def _uncompressed(column: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([column], ["data"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written
