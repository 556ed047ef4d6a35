"""Append requests: what is taken, what is refused, and in which words."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from topics import codec
from topics.codec import MAX_DEPTH
from topics.core import MIB, ApiError, UnknownFields

pytestmark = pytest.mark.usefixtures("both_codecs")

TS = 1_760_011_200_450


def one(body: bytes, *, publish: bool = False) -> Any:
    (write,) = codec.decode([body], publish=publish)
    return write


def of(records: bytes) -> bytes:
    return b'{"records":[%b]}' % records


def text(write: Any, first_seq: int = 1, ts: int = 2) -> bytes:
    return bytes(codec.encode([write], first_seq, ts).text)


def names(write: Any) -> Any:
    """The tags and the nodes of the records, if one of them has a name."""
    return codec.encode([write], 1, 2).names


def refusal(body: bytes, *, publish: bool = False) -> ApiError:
    assert one(body, publish=publish) is None
    with pytest.raises(ApiError) as refused:
        codec.explain(body, UnknownFields.refuse, publish=publish)
    return refused.value


# --- taken ------------------------------------------------------------------------------------------------


def test_a_plain_record() -> None:
    write = one(b'{"records":[{"data":{"a":1.50}}]}')
    assert (write.count, write.size, write.key, write.create, write.config) == (1, 10, None, None, None)
    assert (write.patient, write.return_seqs, names(write)) == (False, True, ())
    assert text(write) == b'{"$seq":1,"$ts":2,"data":{"a":1.50}}\n'


def test_all_options() -> None:
    write = one(
        b'{"disable_backpressure":true,"return_seqs":false,"create":false,"config":{ "ttl_ms": 5 },'
        b'"idempotency_key":"k\\u00e9","node":"N","records":[{"data":1,"tag":"t"},{"node":"n","data":2}]}'
    )
    assert (write.key, write.create, write.config) == ("ké".encode(), False, b'{"ttl_ms":5}')
    assert (write.patient, write.return_seqs) == (True, False)
    assert names(write) == (["t", None], ["N", "n"])
    assert text(write) == (
        b'{"$seq":1,"$ts":2,"$node":"N","data":1}\n{"$seq":2,"$ts":2,"$node":"n","data":2}\n'
    )


def test_blanks_are_dropped_outside_of_strings_only() -> None:
    write = one(b' { "records" : [ { "data" : { "a b" : [ 1 , 2 ] } , "meta" :\t{ "k" : " " } } ]\r\n}\n')
    assert text(write) == b'{"$seq":1,"$ts":2,"data":{"a b":[1,2]},"meta":{"k":" "}}\n'
    assert write.size == len(b'{"a b":[1,2]}') + len(b'{"k":" "}')


@pytest.mark.parametrize("absent", [b'"tag":null', b'"node":null', b'"meta":null', b'"meta": null '])
def test_null_is_absent(absent: bytes) -> None:
    write = one(of(b'{"data":null,%b}' % absent))
    assert names(write) == ()
    assert text(write) == b'{"$seq":1,"$ts":2,"data":null}\n'


def test_an_empty_name_is_present() -> None:
    write = one(b'{"records":[{"data":1,"tag":"","node":""},{"data":2}],"node":"N"}')
    assert names(write) == (["", None], ["", "N"])


def test_in_a_record_the_last_of_duplicate_keys_counts() -> None:
    write = one(of(b'{"data":1,"tag":"x","meta":5,"d\\u0061ta":[2],"tag":null,"meta":{}}'))
    assert names(write) == ()
    assert text(write) == b'{"$seq":1,"$ts":2,"data":[2],"meta":{}}\n'


def test_escapes_in_names_and_keys_are_resolved_and_data_is_not_touched() -> None:
    write = one(
        rb'{"r\u0065cords":[{"data":"\u0041\/","tag":"\u0041\/\ud83d\ude00","n\u006fde":"\n\u0001\"\\\u00e9"}]}'
    )
    assert names(write) == (["A/😀"], ['\n\x01"\\é'])
    assert text(write) == (b'{"$seq":1,"$ts":2,"$node":"\\n\\u0001\\"\\\\\xc3\xa9","data":"\\u0041\\/"}\n')


@pytest.mark.parametrize(
    "value",
    [b"1e400", b"-0", b"0.0e-0", b"1" * 5000, rb'"\ud83d\ude00"', b'"\x7f"', b'{"a":1,"a":2}', b'""', b"[]"],
    ids=lambda value: repr(value[:20]),
)
def test_values_come_back_as_they_were_sent(value: bytes) -> None:
    assert text(one(of(b'{"data":%b}' % value))) == b'{"$seq":1,"$ts":2,"data":%b}\n' % value


def test_a_command_may_have_names_of_its_own() -> None:
    body = b'{"op":"publish","request_id":[1,2],"topic":"t","records":[{"data":1}]}'
    assert text(one(body, publish=True)) == b'{"$seq":1,"$ts":2,"data":1}\n'
    assert refusal(body).detail == {"unknown": ["op", "request_id", "topic"], "did_you_mean": {}}


def test_names_that_are_ignored_are_left_out() -> None:
    noted: list[UnknownFields] = []
    body = (
        b'{"x":[1],"records":[{"data":1,"tga":2,"tag":"t"},{"data":2,"data":3}],"create":true,"create":false}'
    )
    assert one(body) is None
    write = codec.explain(body, noted.append)
    (unknown_fields,) = noted
    assert unknown_fields.unknown == ["x", "tga"]
    assert unknown_fields.did_you_mean == {"tga": "tag"}
    assert unknown_fields.duplicate == ["create", "data"]
    assert (names(write), write.create) == ((["t", None], None), False)
    assert text(write) == b'{"$seq":1,"$ts":2,"data":1}\n{"$seq":2,"$ts":2,"data":3}\n'


# --- refused ----------------------------------------------------------------------------------------------

RECORDS = "records must be an array of 1 to 10000 records"
TOO_LARGE = "records[0]: data and meta together exceed 1048576 bytes"
DEEP = "body is nested too deeply"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", RECORDS),
        (b'{"records":[]}', RECORDS),
        (b"", "body is not valid JSON: Input data was truncated"),
        (b'{"records":[{"data":\xff}]}', "body is not valid UTF-8"),
        (b'{"records":[{"data":"\xed\xa0\x80"}]}', "body is not valid UTF-8"),
        (of(b"{}"), "records[0]: data is required"),
        (of(b'{"data":1},{"tag":"t"}'), "records[1]: data is required"),
        (of(b'{"data":1,"tag":"%b"}' % (b"x" * 257)), "records[0].tag must be at most 256 bytes"),
        (of(b'{"data":1,"tag":"%b"}' % (b"\\u00e9" * 129)), "records[0].tag must be at most 256 bytes"),
        (of(b'{"data":1,"node":"%b"}' % (b"x" * 129)), "records[0].node must be at most 128 bytes"),
        (
            b'{"records":[{"data":1,"node":"n"}],"node":"%b"}' % (b"x" * 129),
            "node must be at most 128 bytes",
        ),
        (b'{"records":[{}],"node":"%b"}' % (b"x" * 129), "records[0]: data is required"),
        (b'{"records":[{"data":1},{}],"node":"%b"}' % (b"x" * 129), "node must be at most 128 bytes"),
        (of(b'{"data":1,"meta":[]}'), "records[0].meta must be an object"),
        (of(b'{"data":1,"meta":{"k":"%b"}}' % (b"x" * 16377)), "records[0].meta must be at most 16384 bytes"),
        (
            of(b'{"data":1,"meta":{%b}}' % b",".join([b'"%d":%d' % (n, n) for n in range(65)])),
            "records[0].meta must have at most 64 keys",
        ),
        (of(b'{"data":%b}' % (b"[" * 901 + b"]" * 901)), DEEP),
        (of(b'{"data": %b}' % (b"[" * 5000 + b"]" * 5000)), DEEP),
        (of(b'{"data":1,"meta":{"k":%b}}' % (b"[" * 900 + b"]" * 900)), DEEP),
        (of(b'{"data":1,"tag":5}'), "Expected `str | null`, got `int` - at `$.records[0].tag`"),
        (b'{"records":[{"data":1}],"records":[]}', 'more than once: "records"'),
        (b'{"records":[{"data":1}],"r\\u0065cords":[]}', 'more than once: "records"'),
        (of(b'{"data":1,"tga":1}'), 'unknown: "tga" (did you mean "tag"?)'),
    ],
    ids=lambda value: str(value[:40]),
)
def test_the_first_mistake_is_told(body: bytes, message: str) -> None:
    refused = refusal(body)
    assert (refused.code, refused.message) == ("invalid_request", message)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            of(b'{"data":1},' * 10_000 + b'{"data":1}'),
            "batch_too_large",
            "at most 10000 records fit in one write",
        ),
        (of(b'{"data":1},' * 10_000 + b"1"), "batch_too_large", "at most 10000 records fit in one write"),
        (of(b'{"data":"%b"}' % (b"x" * (MIB - 1))), "record_too_large", TOO_LARGE),
        (of(b'{"data":"%b","meta":{"k":1}}' % (b"x" * (MIB - 8))), "record_too_large", TOO_LARGE),
    ],
    ids=["records", "records, and a mistake", "data", "data and meta"],
)
def test_what_is_too_large_is_told(body: bytes, code: str, message: str) -> None:
    refused = refusal(body)
    assert (refused.code, refused.message) == (code, message)


@pytest.mark.parametrize(
    "body",
    [
        of(b'{"data":1},' * 9_999 + b'{"data":1}'),
        of(b'{"data":"%b"}' % (b"x" * (MIB - 2))),
        of(b'{"data":"%b","meta":{"k":1}}' % (b"x" * (MIB - 9))),
        of(b'{"data":1,"tag":"%b","node":"%b"}' % (b"\\u00e9" * 128, "é".encode() * 64)),
        of(b'{"data":1,"meta":{"k":"%b"}}' % (b"x" * 16376)),
        of(b'{"data":1,"meta":{"k": "%b"}}' % (b"x" * 16376)),
        of(b'{"data":1,"meta":{%b}}' % b",".join([b'"%d":%d' % (n % 64, n) for n in range(640)])),
        of(b'{"data":1,"meta":{%b,"A":1}}' % b",".join([b'"\\u0041%d":1' % n for n in range(63)])),
        of(b'{"data":%b}' % (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)),
        of(b'{"data":[%b]}' % b",".join([b'"%b"' % (b"[" * 1000)] * 3 + [b"[]"] * 1000)),
        b'{"records":[{"data":1%b}]}' % (b" " * 2 * MIB),
    ],
    ids=range(11),
)
def test_what_just_fits_is_taken(body: bytes) -> None:
    write = one(body)
    assert codec.encode([write], 1, 1).count == write.count
    assert text(codec.explain(body, UnknownFields.refuse)) == text(write)


@pytest.mark.parametrize("config", [b"1", b'"x"', b"[]", b"true"])
def test_a_config_is_an_object(config: bytes) -> None:
    assert refusal(b'{"records":[{"data":1}],"config":%b}' % config).message.startswith(
        "Expected `object | null`"
    )


def test_a_config_is_judged_by_those_who_use_it() -> None:
    body = b'{"records":[{"data":1}],"config":{"nope":1}}'
    assert one(body).config == b'{"nope":1}'
    with pytest.raises(ApiError, match='unknown: "nope"'):
        codec.explain(body, UnknownFields.refuse)


# --- large bodies -----------------------------------------------------------------------------------------

BIG = b'{"data":{"a":"%b"},"tag":"t","meta":{"k":[1, 2]}}' % (b"x" * 5000)
MANY = b" ,\n".join([BIG] * 300)


def test_a_large_body() -> None:
    write = one(b'{"node":"n","records":[%b],"idempotency_key":"k"}' % MANY)
    assert (write.count, write.key, names(write)) == (300, b"k", (["t"] * 300, ["n"] * 300))
    lines = text(write, 995).splitlines()
    assert lines[5].startswith(b'{"$seq":1000,"$ts":2,"$node":"n","data":{"a":"xxx')
    assert lines[5].endswith(b'xxx"},"meta":{"k":[1,2]}}')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (of(MANY + b",{}"), "records[300]: data is required"),
        (of(MANY + b',{"data":1,"tag":"%b"}' % (b"x" * 257)), "records[300].tag must be at most 256 bytes"),
        (of(MANY + b","), "body is not valid JSON: trailing comma in array"),
        (of(MANY)[:-2], "body is not valid JSON: it ends too soon"),
        (of(MANY + b',{"data":"\xff"}'), "body is not valid UTF-8"),
        (of(MANY + b',{"data":%b}' % (b"[" * 901 + b"]" * 901)), DEEP),
        (b'{"records":[%b],"node":5}' % MANY, "Expected `str | null`, got `int` - at `$.node`"),
        (b'{"records":[%b],"x":1}' % MANY, 'unknown: "x"'),
        (of(MANY + b',{"data":1,"x":1}'), 'unknown: "x"'),
        (b'{"records":[],"x":"%b"}' % (b"x" * MIB), "without its records, this is more than 1048576 bytes"),
    ],
    ids=range(10),
)
def test_mistakes_in_large_bodies_are_told(body: bytes, message: str) -> None:
    assert refusal(body).message == message


# --- columns ----------------------------------------------------------------------------------------------


def columns(*cells: bytes, **more: Any) -> Any:
    offsets, end = [0], 0
    for cell in cells:
        end += len(cell)
        offsets.append(end)
    packed = struct.pack(f"{len(offsets)}i", *offsets)
    given: dict[str, Any] = {"metas": None, "names": (), "checked": False} | more
    return codec.from_columns(b"".join(cells), packed, **given)


def test_columns_are_rendered_as_a_body_is() -> None:
    write = columns(b"1", b'"x"', metas=[None, b'{"k":1}'], names=([None, "t"], ['q"', None]))
    body = of(b'{"data":1,"node":"q\\""},{"data":"x","meta":{"k":1},"tag":"t"}')
    assert codec.encode([write], 7, 9).payload == codec.encode([one(body)], 7, 9).payload
    assert (write.key, write.create, write.config, write.return_seqs) == (None, None, None, True)


@pytest.mark.parametrize(
    "cell", [b"", b" 1", b"[1, 2]", b"1,2", b"1 2", b'"\xff"', b"[" * 901 + b"]" * 901, b"1" * (MIB + 1)]
)
def test_a_cell_is_one_compact_value(cell: bytes) -> None:
    assert columns(b"1", cell) is None
    assert columns(b"1", cell, checked=True).count == 2


def test_columns_that_hold_nothing_are_absent() -> None:
    write = columns(b"1", metas=[None], names=([None], [None]))
    assert (names(write), codec.encode([write], 1, 1).flags) == ((), 0)
    assert columns().count == 0


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 1], [1, 0], []])
def test_offsets_fit_the_data(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"data_offsets do not fit data|different lengths"):
        codec.from_columns(b"1234", struct.pack(f"{len(offsets)}i", *offsets), None, (), checked=True)


def test_columns_have_one_length() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        columns(b"1", names=(["a", "b"], None))


# --- payloads ---------------------------------------------------------------------------------------------


def test_the_parts_of_a_payload() -> None:
    body = b'{"records":[{"data":1,"tag":"t","meta":{}},{"data":"xy","node":"n"}]}'
    rows = codec.encode([one(body)], 9, TS, hops=b"\1\2")
    head = b'{"$seq":%d,"$ts":1760011200450,'
    text = head % 9 + b'"data":1,"meta":{}}\n' + head % 10 + b'"$node":"n","data":"xy"}\n'
    assert bytes(rows.text) == text
    assert rows.payload == b"".join(
        (
            struct.pack("<II", len(text), 4),
            text,
            struct.pack("<II", 1, 4),
            struct.pack("<II", 2, 0),
            b"\1\2",
            b"\x92\xa1t\xc0",
            b"\x92\xc0\xa1n",
        )
    )
    assert rows.flags == 15
    assert rows.ends == struct.pack("<II", text.index(b"\n") + 1, len(text))
    assert (rows.data_lens, rows.meta_lens) == (struct.pack("<II", 1, 4), struct.pack("<II", 2, 0))
    assert (rows.count, rows.size, rows.first_seq, rows.ts, rows.hops) == (2, 7, 9, TS, b"\1\2")
    assert rows.names == (["t", None], [None, "n"])


def test_several_writes_share_a_payload() -> None:
    writes = codec.decode([of(b'{"data":1}'), of(b'{"data":2,"tag":"t"},{"data":3}')])
    rows = codec.encode(writes, 99, 5)
    assert [line[:10] for line in bytes(rows.text).splitlines()] == [
        b'{"$seq":99',
        b'{"$seq":10',
        b'{"$seq":10',
    ]
    assert rows.names == ([None, "t", None], None)


def test_numbers_and_hops_are_checked() -> None:
    write = one(of(b'{"data":1}'))
    for first_seq, ts in ((2**63, 1), (-1, 1), (1, 2**63)):
        with pytest.raises(OverflowError):
            codec.encode([write], first_seq, ts)
    with pytest.raises(ValueError, match="hops"):
        codec.encode([write], 1, 1, b"\1\1")
