"""Answers and streams in fewer bytes, for clients that ask for it: zstd or gzip."""

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.http.response_heads import HeaderList

# Smaller answers would hardly become smaller.
LEAST_BYTES = 1024
# Larger bodies are compressed on a thread, because the event loop would stall.
INLINE_BYTES = 64 * 1024
# The fastest: the network is rarely slower than a better one.
_LEVEL = 1
_GZIP = 16
# A stream of events, which may be one of thousands, keeps 4 KiB of history instead of 32 or more. A stream in
# bulk is over soon.
_EVENTS_BITS, _EVENTS_MEMORY = 12, 4
_ZSTD_EVENTS_LOG, _ZSTD_BULK_LOG = 12, 19
_ENCODINGS = (b"zstd", b"gzip")
_NONE = b""


def chosen_encoding(accepted: bytes) -> bytes:
    """The encoding that an `Accept-Encoding` likes best and we know; empty for none."""
    best, best_weight = _NONE, 0.0
    weights: dict[bytes, float] = {}
    for part in accepted.lower().split(b","):
        name, _, parameters = part.partition(b";")
        weights[name.strip()] = _weight(parameters)
    for name in _ENCODINGS:
        weight = weights.get(name, weights.get(b"*", 0.0))
        if weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def encoding_headers(encoding: bytes) -> "HeaderList":
    return [(b"Content-Encoding", encoding), (b"Vary", b"Accept-Encoding")]


def compress(body: bytes, encoding: bytes) -> bytes:
    if encoding == b"gzip":
        packer = zlib.compressobj(_LEVEL, wbits=zlib.MAX_WBITS + _GZIP)
        return packer.compress(body) + packer.flush()
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(body)


class StreamEncoder:
    """Compresses a stream. After each piece, the client can read all of it."""

    def __init__(self, encoding: bytes, *, in_bulk: bool) -> None:
        self._packer: Any
        if encoding == b"gzip":
            bits, memory = (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL) if in_bulk else (_EVENTS_BITS, _EVENTS_MEMORY)
            self._packer = zlib.compressobj(_LEVEL, wbits=bits + _GZIP, memLevel=memory)
            self._mode = zlib.Z_SYNC_FLUSH
        else:
            import zstandard

            log = _ZSTD_BULK_LOG if in_bulk else _ZSTD_EVENTS_LOG
            parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, window_log=log)
            self._packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
            self._mode = zstandard.COMPRESSOBJ_FLUSH_BLOCK

    def encode(self, data: bytes) -> bytes:
        piece: bytes = self._packer.compress(data) + self._packer.flush(self._mode)
        return piece

    def end(self) -> bytes:
        last: bytes = self._packer.flush()
        return last
