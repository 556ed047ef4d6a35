"""What a stream unfolds to is known before it unfolds, and never less than what Arrow makes of it."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.support import arrow
from topics.core.errors import ApiError
from topics.log.write import arrow_messages
from topics.log.write.arrow_batch import check_stream, read_stream
from topics.log.write.arrow_messages import unfolded_size

MIB = 1024 * 1024
LARGE = 1 << 40


def stream(
    *batches: pa.RecordBatch, compression: str | None = None, version: str = "V5", **more: bool
) -> bytes:
    options = pa.ipc.IpcWriteOptions(
        compression=compression, metadata_version=getattr(pa.ipc.MetadataVersion, version), **more
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def everything(rng: random.Random, rows: int) -> pa.RecordBatch:
    """A column of every kind of layout there is."""
    texts = [None if rng.random() < 0.1 else "x" * rng.choice((0, 3, 40, 4000)) for _ in range(rows)]
    numbers = [None if rng.random() < 0.1 else rng.randrange(1 << 40) for _ in range(rows)]
    lists = [None if rng.random() < 0.1 else texts[: rng.randrange(4)] for _ in range(rows)]
    columns = {
        "text": pa.array(texts, pa.string()),
        "large": pa.array(texts, pa.large_string()),
        "view": pa.array(texts, pa.string_view()),
        "number": pa.array(numbers, pa.int64()),
        "flag": pa.array([n is None for n in numbers]),
        "nothing": pa.nulls(rows),
        "fixed": pa.array([b"1234567"] * rows, pa.binary(7)),
        "list": pa.array(lists, pa.list_(pa.string())),
        "list view": pa.array(lists, pa.list_view(pa.string())),
        "struct": pa.array([{"a": t, "b": n} for t, n in zip(texts, numbers, strict=True)]),
        "map": pa.array([[("k", t)] for t in texts], pa.map_(pa.string(), pa.string())),
        "code": pa.array(texts, pa.string()).dictionary_encode(),
        "number code": pa.array(numbers, pa.int64()).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array(["run"])),
    }
    return pa.RecordBatch.from_pydict(columns)


# What a buffer was taken from has to outlive it, and tracebacks keep buffers alive.
POOLS: list[pa.MemoryPool] = []


def taken_by_arrow(body: bytes) -> int:
    """All that the library allocates to read a stream, as far as that can be read."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    with (
        contextlib.suppress(pa.ArrowException, OSError, ValueError),
        pa.ipc.open_stream(body, memory_pool=pool) as reader,
    ):
        list(reader)
    return int(pool.max_memory() or 0)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("version", ["V4", "V5"])
@pytest.mark.parametrize("legacy", [False, True])
def test_no_less_is_counted_than_arrow_takes(compression: str | None, version: str, legacy: bool) -> None:
    rng = random.Random(7)
    for batch in (everything(rng, rows) for rows in (1, 30, 500)):
        body = stream(batch, compression=compression, version=version, use_legacy_format=legacy)
        counted, _ = unfolded_size(body, LARGE)
        # Buffers are aligned, and a batch has some small things of its own.
        assert taken_by_arrow(body) <= counted + 64 * 4 * batch.num_columns
        for size in (counted - 1, counted // 2, 0):
            with pytest.raises(ApiError) as refused:
                unfolded_size(body, size)
            assert refused.value.code == "payload_too_large"
        assert unfolded_size(body, counted) == (counted, 1)


def test_all_batches_and_dictionaries_count_together() -> None:
    plain = pa.RecordBatch.from_pydict({"data": ["1" * 100] * 10})
    one, _ = unfolded_size(stream(plain), LARGE)
    assert unfolded_size(stream(plain, plain, plain), LARGE) == (3 * one, 3)
    coded = pa.RecordBatch.from_pydict({"data": pa.array(["1" * 1000] * 10).dictionary_encode()})
    assert 1000 < unfolded_size(stream(coded), LARGE)[0] < 3000


def test_a_number_that_no_sum_can_hold() -> None:
    body = stream(pa.RecordBatch.from_pydict({"data": ["1"], "tag": ["2"]}))
    lengths = [at for at in range(len(body) - 8) if body[at : at + 8] == struct.pack("<q", 8)]
    assert len(lengths) >= 2
    for position in lengths:
        lied = body[:position] + struct.pack("<q", (1 << 63) - 1) + body[position + 8 :]
        with pytest.raises(ApiError):
            list(read_stream(lied, MIB))


@pytest.mark.parametrize("declared", [2_000_000_000, (1 << 63) - 1])
def test_a_length_that_lies_is_not_believed(declared: int) -> None:
    with pytest.raises(ApiError) as refused:
        check_stream(arrow.lying(declared), 64 * MIB)
    assert refused.value.code == "payload_too_large"


@pytest.mark.parametrize("declared", [0, 1, 7778, 7780, 60_000_000, -2])
def test_a_length_that_does_not_fit_is_an_error_and_takes_no_more_than_it_says(declared: int) -> None:
    body = arrow.lying(declared)
    with pytest.raises(ApiError) as refused:
        check_stream(body, 64 * MIB)
    assert refused.value.code == "invalid_request"
    assert taken_by_arrow(body) <= max(declared, 0) + 4096


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (lambda: arrow.repeated(32, 64), 64 * MIB),
        (lambda: arrow.dictionary(MIB - 100, 2000), 64 * MIB),
        (lambda: arrow.views(MIB - 100, 2000), 64 * MIB),
    ],
    ids=["compressed", "dictionary", "views"],
)
def test_bombs_are_refused_before_they_unfold(made: Callable[[], bytes], limit: int) -> None:
    body = made()
    assert len(body) < 1.1 * MIB
    before = pa.default_memory_pool().max_memory() or 0
    with pytest.raises(ApiError) as refused:
        check_stream(body, limit)
    assert refused.value.code == "payload_too_large"
    assert (pa.default_memory_pool().max_memory() or 0) - before < 8 * MIB


def test_values_that_fit_when_all_rows_have_their_own_are_taken() -> None:
    for body in (arrow.dictionary(1000, 90), arrow.views(1000, 90)):
        (batch,) = check_stream(body, 100_000)
        assert batch.count == 90
        with pytest.raises(ApiError) as refused:
            check_stream(body, 80_000)
        assert refused.value.code == "payload_too_large"


def test_a_dictionary_of_something_else_does_not_unfold() -> None:
    values = pa.array([b"x" * MIB], pa.binary(MIB))
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), values)
    body = stream(pa.RecordBatch.from_arrays([column], ["data"]))
    before = pa.total_allocated_bytes()
    with pytest.raises(ApiError, match="must be text"):
        check_stream(body, 64 * MIB)
    assert pa.total_allocated_bytes() - before < 8 * MIB


def test_rows_batches_and_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_messages, "MAX_BULK_RECORDS", 3)
    monkeypatch.setattr(arrow_messages, "MAX_RECORD_BATCHES", 3)
    monkeypatch.setattr(arrow_messages, "MAX_SCHEMA_BYTES", 4000)
    one = pa.RecordBatch.from_pydict({"data": ["1"]})
    assert len(check_stream(stream(one, one, one), MIB)) == 3
    for body, code in (
        (stream(one, one, one, one), "batch_too_large"),
        (stream(pa.RecordBatch.from_pydict({"data": ["1"] * 4})), "batch_too_large"),
        (stream(pa.RecordBatch.from_pydict({f"c{n}": ["1"] for n in range(100)})), "invalid_request"),
    ):
        with pytest.raises(ApiError) as refused:
            check_stream(body, MIB)
        assert refused.value.code == code
    # A batch without columns that says it has rows takes nothing, and is refused all the same.
    many = pa.RecordBatch.from_arrays([pa.nulls(4)], ["data"])
    with pytest.raises(ApiError) as refused:
        check_stream(stream(many), MIB)
    assert refused.value.code == "batch_too_large"


def test_compression_as_it_was_tried_out_once_is_refused() -> None:
    """The library unpacks it, although the message does not have what says so today."""
    assert arrow_messages._TRIAL_COMPRESSION == b"ARROW:experimental_compression"
    batch = pa.RecordBatch.from_pydict({"data": ["1"]})
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, {arrow_messages._TRIAL_COMPRESSION: b"ZSTD"})
    body = sink.getvalue().to_pybytes()
    # What is in there is not compressed.
    with pytest.raises(OSError, match="ZSTD"), pa.ipc.open_stream(body) as reader:
        list(reader)
    with pytest.raises(ApiError, match="2020"):
        check_stream(body, MIB)


def test_whatever_was_damaged_takes_no_more_than_was_counted() -> None:
    rng = random.Random(11)
    bodies = [stream(everything(rng, 40), compression=c) for c in (None, "lz4", "zstd")]
    passed = 0
    for _ in range(3000):
        broken = bytearray(rng.choice(bodies))
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 255, rng.randrange(256)))
        try:
            counted, _ = unfolded_size(bytes(broken), MIB)
        except ApiError:
            continue
        passed += 1
        assert taken_by_arrow(bytes(broken)) <= counted + 8192
    assert passed > 500


ROWS = pa.RecordBatch.from_pydict({"data": ["1", "2", "3"]})


def test_a_schema_takes_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    body = stream(ROWS)
    (size,) = struct.unpack_from("<i", body, 4)
    monkeypatch.setattr(arrow_messages, "MAX_SCHEMA_BYTES", size)
    assert unfolded_size(body, LARGE)[1] == 1
    monkeypatch.setattr(arrow_messages, "MAX_SCHEMA_BYTES", size - 1)
    with pytest.raises(ApiError, match="schema"):
        unfolded_size(body, LARGE)


def test_a_batch_has_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_messages, "MAX_BULK_RECORDS", 3)
    assert unfolded_size(stream(ROWS), LARGE)[1] == 1
    monkeypatch.setattr(arrow_messages, "MAX_BULK_RECORDS", 2)
    with pytest.raises(ApiError) as refusal:
        unfolded_size(stream(ROWS), LARGE)
    assert refusal.value.code == "batch_too_large"


def test_a_stream_may_end_behind_its_last_batch_and_nowhere_else() -> None:
    body = stream(ROWS)[:-8]
    assert unfolded_size(body, LARGE)[1] == 1
    for rest in (struct.pack("<i", 16), struct.pack("<ii", -1, 16)):
        with pytest.raises(ApiError, match="cut off"):
            unfolded_size(body + rest, LARGE)


def test_a_stream_ends_with_its_last_message_or_says_so() -> None:
    body = stream(pa.RecordBatch.from_pydict({"data": ["1"]}))
    end = struct.pack("<Ii", 0xFFFFFFFF, 0)
    assert body.endswith(end)
    told = unfolded_size(body, LARGE)
    unended = body.removesuffix(end)
    for legal in (unended, unended + bytes(4)):
        assert unfolded_size(legal, LARGE) == told
    for cut_off in (unended[:-1], unended + struct.pack("<I", 16), unended + end[:4]):
        with pytest.raises(ApiError, match="not a valid Arrow stream"):
            unfolded_size(cut_off, LARGE)
