"""Records as clients that speak Arrow send them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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
