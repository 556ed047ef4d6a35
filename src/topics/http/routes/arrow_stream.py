"""An Arrow IPC stream written piece by piece; what the log has to say goes in its messages' metadata."""

from typing import Any

import msgspec
import pyarrow as pa

# The key of our metadata, in the schema and in record batches; the value is JSON.
METADATA_KEY = b"topics"


class _Pieces:
    """What pyarrow takes for a file: it keeps what is written until `take`."""

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

    def __init__(self, schema: pa.Schema, about: dict[str, Any]) -> None:
        self._pieces = _Pieces()
        self._schema = schema.with_metadata({METADATA_KEY: msgspec.json.encode(about)})
        self._writer = pa.ipc.new_stream(self._pieces, self._schema)

    def batch(self, batch: pa.RecordBatch, about: dict[str, Any] | None = None) -> bytes:
        metadata = None if about is None else {METADATA_KEY: msgspec.json.encode(about)}
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._pieces.take()

    def end(self, about: dict[str, Any]) -> bytes:
        """A batch without rows that says how it went, and the end of the stream."""
        empty = [pa.array([], kind) for kind in self._schema.types]
        last = self.batch(pa.RecordBatch.from_arrays(empty, schema=self._schema), about)
        self._writer.close()
        return last + self._pieces.take()
