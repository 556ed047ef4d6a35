"""Answers and frames in fewer bytes: which encoding is chosen, and that all of it can be read at once."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
import zstandard

from tests.http.streaming import RunningApp
from tests.support import Wire, raw_request
from topics.http.compression import LEAST_BYTES, StreamEncoder, chosen_encoding, compress
from topics.http.routes import scan

# How an Arrow stream ends.
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (b"gzip", b"gzip"),
        (b"GZIP;q=0.5", b"gzip"),
        (b"gzip, deflate, br, zstd", b"zstd"),
        (b"zstd;q=0.1, gzip;q=0.9", b"gzip"),
        (b"gzip;q=0, zstd;q=0", b""),
        (b"identity", b""),
        (b"br", b""),
        (b"", b""),
        (b"*", b"zstd"),
        (b"*, zstd;q=0", b"gzip"),
        (b"gzip;q=x", b""),
    ],
)
def test_the_one_that_is_liked_best(accepted: bytes, chosen: bytes) -> None:
    assert chosen_encoding(accepted) == chosen


def unpack(encoding: str, data: bytes) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_there_and_back(encoding: str) -> None:
    body = json.dumps(list(range(1000))).encode()
    packed = compress(body, encoding.encode())
    assert len(packed) < len(body)
    assert unpack(encoding, packed) == body


def unpacker(encoding: str) -> Callable[[bytes], bytes]:
    if encoding == "gzip":
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
    return zstandard.ZstdDecompressor().decompressobj().decompress


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_every_piece_of_a_stream_can_be_read_at_once(encoding: str) -> None:
    for in_bulk in (False, True):
        encoder, read = StreamEncoder(encoding.encode(), in_bulk=in_bulk), unpacker(encoding)
        for piece in (b"retry: 2000", b"x" * 100_000, b"y"):
            assert read(encoder.encode(piece)) == piece
        assert read(encoder.end()) == b""


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_answers_are_compressed_when_that_is_asked_for(app: RunningApp, encoding: str) -> None:
    app.write("t", *(f"record {n}" * 5 for n in range(1000)))
    wire = app.wire()
    for path in ("/v0/topics/t/records?limit=50", "/v0/topics/t/records?limit=1000", "/v0/metrics"):
        plain = wire.request("GET", path)
        assert "content-encoding" not in plain.headers
        for _ in range(2):
            answer = wire.request("GET", path, None, {"Accept-Encoding": encoding})
            assert (answer.headers["content-encoding"], answer.headers["vary"]) == (
                encoding,
                "Accept-Encoding",
            )
            assert len(answer.body) < len(plain.body)
            body = unpack(encoding, answer.body)
            assert path == "/v0/metrics" or json.loads(body)["records"] == plain.json["records"]
    small = wire.request("GET", "/v0/topics/t", None, {"Accept-Encoding": encoding})
    assert len(small.body) < LEAST_BYTES
    assert "content-encoding" not in small.headers
    head = wire.request("HEAD", "/v0/metrics", None, {"Accept-Encoding": encoding})
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_streams_are_compressed_frame_by_frame(app: RunningApp, encoding: str) -> None:
    app.write("t", "first")
    wire: Wire = app.wire()
    wire.send(raw_request("GET", "/v0/tail?topic=t@0", headers={"Accept-Encoding": encoding}))
    status, headers = wire.read_head()
    assert (status, headers["content-encoding"]) == (200, encoding)
    read, seen = unpacker(encoding), b""
    while b"caught-up" not in seen:
        seen += read(wire.read_chunk())
    assert b'"data":"first"' in seen
    app.write("t", "second")
    while b'"data":"second"' not in seen:
        seen += read(wire.read_chunk())


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
def test_arrow_streams_are_compressed_batch_by_batch(
    app: RunningApp, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a batch is compressed beside the loop; and not at all if it is not asked for."""
    monkeypatch.setattr(scan, "WHOLE_BYTES", 1)
    for start in range(0, 20_000, 10_000):
        app.write("t", *(f"record {number}" * 20 for number in range(start, start + 10_000)))
    wire: Wire = app.wire()
    wire.send(raw_request("POST", "/v0/topics/t/scan", headers={"Accept-Encoding": encoding}))
    status, headers = wire.read_head()
    assert (status, headers.get("content-encoding", "identity")) == (200, encoding)
    read = (lambda data: data) if encoding == "identity" else unpacker(encoding)
    sent, body, whole_batches = 0, b"", 0
    while chunk := wire.read_chunk():
        sent += len(chunk)
        body += read(chunk)
        # What has come so far ends with a whole batch: nothing is held back.
        whole_batches = sum(1 for _ in pa.ipc.open_stream(body + END_OF_STREAM))
    assert whole_batches > 1
    table = pa.ipc.open_stream(body).read_all()
    assert table.column("seq").to_pylist() == list(range(1, 20_001))
    assert (sent < len(body) / 2) == (encoding != "identity")
