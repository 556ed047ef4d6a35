"""Both codecs give the same results, byte for byte, for whatever they are given."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tests.codec.bodies import damaged_bodies, good_bodies, names, request_bodies, token_bodies, values
from tests.support.codecs import CODECS, NATIVE
from topics.core import ApiError
from topics.core.record_fields import FIELDS

TS = 1_760_011_200_450

if NATIVE is None:
    pytest.skip("there is no compiled codec", allow_module_level=True)


def told(write: Any) -> Any:
    return (
        write.count,
        write.size,
        write.key,
        write.create,
        write.config,
        write.patient,
        write.return_seqs,
    )


def rendered(rows: Any) -> Any:
    return (
        rows.count,
        rows.size,
        rows.first_seq,
        rows.ts,
        rows.flags,
        rows.payload,
        bytes(rows.text),
        rows.ends,
        rows.data_lens,
        rows.meta_lens,
        rows.hops,
        rows.names,
    )


def encoded(codec: Any, writes: list[Any]) -> Any:
    """The rows of these writes, from different seqs on, with and without hops."""
    count = sum(write.count for write in writes)
    return [
        rendered(codec.encode(writes, first_seq, ts, hops=hops))
        for first_seq, ts in ((0, 0), (7, TS), (995, TS), (99_998, TS), (2**63 - 1 - count, TS))
        for hops in (None, b"\1" * count)
    ]


def explained(codec: Any, body: bytes, *, publish: bool, ignored: bool) -> Any:
    noted: list[Any] = []
    try:
        write = codec.explain(
            body, noted.append if ignored else lambda unknown_fields: unknown_fields.refuse(), publish=publish
        )
        result: Any = (told(write), encoded(codec, [write]))
    except ApiError as error:
        result = (error.code, error.message, error.detail)
    return result, [str(unknown_fields.refusal().detail) for unknown_fields in noted]


def agree(body: bytes) -> None:
    for publish in (False, True):
        found = [codec.decode([body], publish=publish)[0] for codec in CODECS.values()]
        results = [
            None if write is None else (told(write), encoded(codec, [write]))
            for codec, write in zip(CODECS.values(), found, strict=True)
        ]
        assert results[0] == results[1]
        for ignored in (False, True):
            words = [explained(codec, body, publish=publish, ignored=ignored) for codec in CODECS.values()]
            assert words[0] == words[1]
            # The words fit: a request that is taken has no mistake outside of its config and key.
            if results[0] is None and not ignored:
                assert isinstance(words[0][0][1], str)
            elif results[0] is not None and results[0][0][4] is None and len(results[0][0][2] or b"") <= 256:
                assert words[0] == (results[0], [])


@given(request_bodies)
def test_requests(body: bytes) -> None:
    agree(body)


@settings(max_examples=400)
@given(token_bodies)
def test_arbitrary_tokens(body: bytes) -> None:
    agree(body)


@settings(max_examples=400)
@given(damaged_bodies)
def test_damaged_requests(body: bytes) -> None:
    agree(body)


@settings(max_examples=400)
@given(st.binary(max_size=8))
def test_arbitrary_bytes_in_a_string(inner: bytes) -> None:
    agree(b'{"records":[{"data":"%b"},{"data":1,"tag":"%b"}]}' % (inner, inner))


NUMBERS = st.text("0123456789-+.eE", min_size=1, max_size=8)


@settings(max_examples=400)
@given(NUMBERS)
def test_numbers(number: str) -> None:
    agree(b'{"records":[{"data":%b},{"data":[%b ]}]}' % (number.encode(), number.encode()))


@given(st.lists(good_bodies, min_size=1, max_size=5))
def test_several_requests_in_one_payload(bodies: list[bytes]) -> None:
    results = []
    for codec in CODECS.values():
        writes = [write for write in codec.decode(bodies) if write is not None]
        results.append(encoded(codec, writes) if writes else None)
    assert results[0] == results[1]


cells = st.one_of(
    values.map(lambda value: repr(value).encode("utf-8", "replace")),
    st.sampled_from(
        [b"1", b'"a"', b"[1,2]", b"[1, 2]", b" 1", b"", b"{}", b'"\xff"', b"01", b"1,2", b'{"a":[]}']
    ),
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, ...]:
    data = draw(st.lists(cells, max_size=6))
    offsets = array("i", [0])
    for cell in data:
        offsets.append(offsets[-1] + len(cell))

    def column(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(st.none(), st.lists(strategy, min_size=len(data), max_size=len(data)))

    metas = draw(column(st.sampled_from([None, b"{}", b'{"k":1}'])))
    count = draw(st.integers(0, len(FIELDS)))
    return b"".join(data), offsets, metas, tuple(draw(column(names)) for _ in range(count))


@given(columns(), st.booleans())
def test_columns(given_columns: tuple[Any, ...], checked: bool) -> None:
    results = []
    for codec in CODECS.values():
        write = codec.from_columns(*given_columns, checked=checked)
        results.append(None if write is None else (told(write), encoded(codec, [write])))
    assert results[0] == results[1]


@given(st.lists(st.binary(max_size=40).map(lambda row: row.replace(b"\n", b"") + b"\n")))
def test_pages(rows: list[bytes]) -> None:
    expected = b"<" + b",".join(row[:-1] for row in rows) + b">"
    for codec in CODECS.values():
        assert codec.page(b"<", b"".join(rows), b">") == expected


@settings(max_examples=300)
@given(st.data())
def test_rows_that_are_not_marked(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 3, 30, 20_000, 70_000]), min_size=1, max_size=20))
    count, rows = len(sizes), b"".join(bytes([65 + at]) * size for at, size in enumerate(sizes))
    ends = array("I", [sum(sizes[: at + 1]) for at in range(count)])
    borders = None
    if data.draw(st.booleans()):
        multiples = range(1, (ends[-1] >> 16) + 1)
        borders = array("I", [sum(end < multiple << 16 for end in ends) for multiple in multiples])
        ends = array("H", [end & 0xFFFF for end in ends])
    marks = bytes(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    start, stop = data.draw(st.integers(-1, count)), data.draw(st.integers(0, count + 1))
    room, budget = data.draw(st.integers(0, 12)), data.draw(st.sampled_from([10, 50_000, 10**9]))
    results = []
    for codec in CODECS.values():
        try:
            results.append(codec.alive(rows, ends, borders, marks, start, stop, room, budget))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]
    if 0 <= start < stop <= count and room:
        live = [at for at in range(start, stop) if not marks[at]][:room]
        if isinstance(results[0], tuple):
            assert results[0][1] == live[-1] + 1
            assert results[0][0] == b"".join(bytes([65 + at]) * sizes[at] for at in live)
        else:
            assert len(live) < room or sum(sizes[start : live[-1] + 1]) > budget


def frame(seq: int, rows: bytes, lengths: list[int], **other: int) -> bytes:
    payload = struct.pack("<II", len(rows), 0) + rows + array("I", lengths).tobytes()
    said = {"kind": 4, "flags": 0, "count": len(lengths), "topic": 7, "synced": 0} | other
    fields = struct.pack(
        "<QIBBHIIQQQQ",
        xxh3_64_intdigest(payload),
        len(payload),
        said["kind"],
        said["flags"],
        0,
        said["count"],
        0,
        said["topic"],
        seq,
        TS,
        said["synced"],
    )
    return b"FPJ1" + struct.pack("<I", xxh3_64_intdigest(fields) & 0xFFFFFFFF) + fields + payload


frames = st.tuples(
    st.binary(max_size=9),
    st.lists(st.integers(0, 2**32 - 1), max_size=17),
    st.sampled_from(
        [{}, {}, {}, {}, {"kind": 5}, {"flags": 1}, {"topic": 8}, {"synced": 2**40}, {"count": 9}]
    ),
)


@given(st.lists(frames, max_size=8), st.integers(0, 40), st.integers(0, 60))
def test_small_frames(given_frames: list[Any], cut: int, flipped: int) -> None:
    seq, window, whole = 1, b"", []
    for rows, lengths, other in given_frames:
        window += frame(seq, rows, lengths, **other)
        whole.append((len(window), other or len(lengths) > 16))
        seq += len(lengths)
    window = window[: len(window) - cut]
    if flipped < len(window) and flipped % 3 == 0:
        window = window[:flipped] + bytes([window[flipped] ^ 1]) + window[flipped + 1 :]
    results = []
    for codec in CODECS.values():
        starts = codec.find_frames(window, 7, 1, 0)
        results.append((starts, codec.frame_parts(window, starts)))
    assert results[0] == results[1]
    edges = array("q", results[0][0]).tolist()
    assert edges == [0, *[end for end, _ in whole[: len(edges) - 1]]]
    assert not any(other for _, other in whole[: len(edges) - 1])
