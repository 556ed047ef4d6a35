"""Writes that arrive as columns obey the rules of JSON writes and end up as the same bytes."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.appending import write_of
from topics import codec
from topics.codec import Write
from topics.core.errors import ApiError
from topics.log.write.arrow_batch import check_batch, compact, read_stream

pytestmark = pytest.mark.usefixtures("both_codecs")


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: v if isinstance(v, pa.Array) else pa.array(v, pa.string()) for name, v in columns.items()}
    )


def refusal(**columns: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check_batch(batch(**columns))
    return caught.value


def payload(write: Write) -> bytes:
    return codec.encode([write], 41, 1_700_000_000_000).payload


def texts(cells: list[str]) -> list[str]:
    return compact(pa.array(cells, pa.string()), "data").to_pylist()


def as_json_write(**columns: list[Any]) -> Write:
    """The same records as a JSON write would have them."""
    records = []
    for index, data in enumerate(columns["data"]):
        parts = [f'"data":{data}']
        parts += [
            f'"{name}":{json.dumps(columns[name][index])}'
            for name in ("tag", "node")
            if columns.get(name) and columns[name][index] is not None
        ]
        if columns.get("meta") and columns["meta"][index] is not None:
            parts.append(f'"meta":{columns["meta"][index]}')
        records.append("{" + ",".join(parts) + "}")
    return write_of(('{"records":[' + ",".join(records) + "]}").encode())


# --- one cell, one value ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        ["1,2"],
        ["[1", "2]"],
        ["[1,", "2]"],
        ['{"a":1', '"b":2}'],
        ["1,2", "[3", "4]"],  # as many elements as cells, and still not the same ones
        ["[3", "4]", "1,2"],
        ['"a', 'b"'],
        ["1]", "[2"],
        [""],
        ["1", " ", "2"],
        ["nul"],
        ["01"],
        ["NaN"],
        ['{"a":1}x'],
        ['"\x01"'],
        ["[" * 100_000],
    ],
)
def test_cells_that_are_not_one_json_value_each_are_refused(cells: list[str]) -> None:
    with pytest.raises(ApiError, match=r"data is (not valid JSON|nested too deeply)"):
        texts(cells)


def test_the_refusal_names_the_row() -> None:
    cells = ["1"] * 10_000
    cells[9_321] = "oops"
    with pytest.raises(ApiError, match="row 9321: data is not valid JSON"):
        texts(cells)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (' {"a" : [1, 2]}\n', '{"a":[1,2]}'),
        ('"a b"', '"a b"'),
        ('{"a b":"c  d"}', '{"a b":"c  d"}'),
        ("1\t", "1"),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("1e999", "1e999"),
        ("12345678901234567890123", "12345678901234567890123"),
        ('"\\u00e9\\/"', '"\\u00e9\\/"'),
    ],
)
def test_only_insignificant_white_space_is_taken_out(cell: str, expected: str) -> None:
    assert texts([cell]) == [expected]
    assert texts(["1", cell, '"x"']) == ["1", expected, '"x"']


def test_random_values_pass_unchanged_and_random_cuts_do_not() -> None:
    rng = random.Random(7)

    def value(depth: int) -> Any:
        kind = rng.randrange(7 if depth else 4)
        if kind < 4:
            return rng.choice([None, True, 3, -1.5, "a,b", 'q"\\', "é", "", "]", "}{"])
        if kind < 6:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice("abc"): value(depth - 1) for _ in range(rng.randrange(3))}

    for _ in range(300):
        cells = [json.dumps(value(3), separators=(",", ":")) for _ in range(5)]
        assert texts(cells) == cells
        joined = ",".join(cells)
        at = sorted(rng.sample(range(1, max(len(joined), 6)), 2)) if len(joined) > 6 else None
        if at is None:
            continue
        cut = [joined[: at[0]], joined[at[0] : at[1]], joined[at[1] :]]
        if all(_is_json(cell) for cell in cut):
            continue
        with pytest.raises(ApiError):
            texts(cut)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# --- the same bytes as a JSON write -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"data": ["1", '{"a":1}', "null"]},
        {"data": ["1", '"x"'], "tag": ["t", None]},
        {"data": ["1", '"x"', "2"], "node": ["n", None, 'q"é']},
        {"data": ["1", '"x"'], "meta": ['{"m":1}', None]},
        {"data": ["1", "2"], "tag": [None, None], "node": [None, None], "meta": [None, None]},
        {
            "data": ["1", "2", "3"],
            "tag": ["a", "b", "a"],
            "node": ["n", "n", "m"],
            "meta": [None, "{}", "null"],
        },
    ],
)
def test_rows_and_side_values_equal_those_of_a_json_write(columns: dict[str, list[Any]]) -> None:
    ours, theirs = check_batch(batch(**columns)), as_json_write(**columns)
    assert payload(ours) == payload(theirs)
    assert (ours.count, ours.size) == (
        theirs.count,
        theirs.size,
    )


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
)
def test_any_kind_of_text_column_will_do(kind: pa.DataType) -> None:
    cells = ["1", '"é"']
    values = [cell.encode() for cell in cells] if "binary" in str(kind) else cells
    assert payload(check_batch(batch(data=pa.array(values, kind)))) == payload(as_json_write(data=cells))


def test_dictionaries_and_slices_will_do() -> None:
    column = pa.array(["9", "1", "2", "1"]).dictionary_encode().slice(1)
    assert payload(check_batch(batch(data=column))) == payload(as_json_write(data=["1", "2", "1"]))


# --- limits -----------------------------------------------------------------------------------------------


def test_data_is_required_in_every_row() -> None:
    assert refusal(tag=["x"]).code == "invalid_request"
    assert refusal(data=["1", None]).code == "invalid_request"


def test_columns_must_be_text_and_named_once() -> None:
    assert "must be text" in refusal(data=pa.array([1])).message
    assert "must be text" in refusal(data=["1"], tag=pa.array([1])).message
    twice = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["data", "data"])
    with pytest.raises(ApiError, match="2 columns named data"):
        check_batch(twice)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert refusal(data=pa.array([b'"\xff"'])).code == "invalid_request"


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"tag": ["é" * 129]}, "invalid_request"),
        ({"node": ["é" * 65]}, "invalid_request"),
        ({"meta": ["[]"]}, "invalid_request"),
        ({"meta": ["{"]}, "invalid_request"),
        ({"meta": ['{"k":"' + "x" * 16_384 + '"}']}, "invalid_request"),
        ({"meta": [json.dumps({f"k{i}": i for i in range(65)})]}, "invalid_request"),
        ({"data": ['"' + "x" * 1_048_575 + '"']}, "record_too_large"),
        ({"data": ['"' + "x" * 1_048_570 + '"'], "meta": ['{"k":12345}']}, "record_too_large"),
    ],
)
def test_values_over_their_limit_are_refused(columns: dict[str, list[str]], code: str) -> None:
    assert refusal(**({"data": ["1"]} | columns)).code == code


@pytest.mark.parametrize(
    "columns",
    [
        {"tag": ["é" * 128]},
        {"node": ["é" * 64]},
        {"meta": [json.dumps({f"k{i}": i for i in range(64)})]},
        {"data": ['"' + "x" * 1_048_574 + '"']},
    ],
)
def test_values_at_their_limit_are_taken(columns: dict[str, list[str]]) -> None:
    assert check_batch(batch(**({"data": ["1"]} | columns))).count == 1


# --- streams ----------------------------------------------------------------------------------------------


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        for one in batches:
            writer.write_batch(one)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_stream_yields_its_batches(compression: str | None) -> None:
    body = stream(batch(data=["1", "2"]), batch(data=["3"]), compression=compression)
    assert [b.column("data").to_pylist() for b in read_stream(body, 1 << 20)] == [["1", "2"], ["3"]]


def test_the_ceiling_holds_for_what_a_stream_unfolds_to() -> None:
    body = stream(batch(data=["1" * 50_000]), compression="zstd")
    assert len(body) < 5000
    with pytest.raises(ApiError) as caught:
        list(read_stream(body, 10_000))
    assert caught.value.code == "payload_too_large"


def test_damaged_streams_are_refused_and_never_crash() -> None:
    body = stream(batch(data=["1", '"abc"', "[]"] * 20, tag=["x", None, "y"] * 20))
    rng = random.Random(3)
    for _ in range(400):
        broken = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        with contextlib.suppress(ApiError):
            for one in read_stream(bytes(broken), 1 << 20):
                payload(check_batch(one))


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()], ids=str)
def test_buffers_may_end_with_less_than_a_whole_number(kind: pa.DataType) -> None:
    cells = pa.array(["1", '"a text of more than twelve bytes"'], kind)
    validity, numbers, *texts = cells.buffers()
    longer = pa.py_buffer(numbers.to_pybytes() + b"\0\0")
    column = pa.Array.from_buffers(kind, 2, [validity, longer, *texts])
    (read,) = read_stream(stream(pa.record_batch({"data": column})), 1 << 20)
    for one in (pa.record_batch({"data": column}), read):
        assert payload(check_batch(one)) == payload(check_batch(pa.record_batch({"data": cells})))


# --- checked, whoever looks at it -------------------------------------------------------------------------


def test_views_count_for_what_they_refer_to() -> None:
    """A hundred rows of sixteen bytes, all of the same text."""
    text = json.dumps("x" * 998).encode()
    view = np.array([(len(text), int.from_bytes(text[:4], "little"), 0, 0)] * 100, "<i4").tobytes()
    column = pa.Array.from_buffers(
        pa.string_view(), 100, [None, pa.py_buffer(view), pa.py_buffer(text)], null_count=0
    )
    batch = pa.record_batch({"data": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 5000
    (read,) = read_stream(body, 101_000)
    assert read.column("data")[99].as_py() == text.decode()
    with pytest.raises(ApiError) as refused:
        list(read_stream(body, 99_000))
    assert refused.value.code == "payload_too_large"
