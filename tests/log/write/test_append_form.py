"""Writes as they arrive: in whatever order and spelling, they say the same, and typos do not get through."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from topics.log.write.append_form import compact_json, decode_append, key_apart
from topics.log.write.append_request import check_append, disables_backpressure, parse_append
from topics.values import ApiError, Misnamed
from topics.values.accelerator import Records

pytestmark = pytest.mark.usefixtures("both_ways")

TEXTS = ["", "x", "a:b", 'q"q', "é", "]", '],"records":[', "}]}", "\\", "\n", '"records":[]']


class Draw:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def data(self) -> Any:
        return self.pick(
            [1, None, self.pick(TEXTS), {"records": [1]}, [self.pick(TEXTS)], {"$seq": {"a": []}}]
        )

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"data": self.data()}
        if self.chance(0.3):
            record["tag"] = self.pick([None, *TEXTS])
        if self.chance(0.2):
            record["node"] = self.pick([None, *TEXTS])
        if self.chance(0.2):
            record["meta"] = self.pick([None, {}, {"records": "]"}])
        return self.shuffled(record)

    def shuffled(self, value: dict[str, Any]) -> dict[str, Any]:
        items = list(value.items())
        self.random.shuffle(items)
        return dict(items)

    def body(self) -> dict[str, Any]:
        plain = self.chance(0.5)
        count = self.pick([1, 1, 2, 5])
        body: dict[str, Any] = {
            "records": [{"data": self.data()} if plain else self.record() for _ in range(count)]
        }
        for name, values in {
            "node": [None, *TEXTS],
            "idempotency_key": [None, *TEXTS],
            "create": [None, True, False],
            "config": [None, {}, {"ttl_ms": 5}, {"dead_letter": "x", "discard": "reject"}],
            "disable_backpressure": [True, False],
            "return_seqs": [True, False],
        }.items():
            if self.chance(0.2):
                body[name] = self.pick(values)
        return self.shuffled(body)

    def text(self, body: Any) -> bytes:
        ascii_only, spaced = self.chance(0.5), self.chance(0.3)
        return json.dumps(body, ensure_ascii=ascii_only, separators=None if spaced else (",", ":")).encode()


def told(text: bytes) -> tuple[Any, ...]:
    """What a write asks for."""
    request = parse_append(text)
    rows = bytes(request.batch.render(7, 1000))
    values = [json.loads(line) for line in rows.splitlines()]
    key = request.idempotency_key
    return (
        values,
        request.batch.tags,
        None if key is None else key.decode(),
        request.create,
        request.return_seqs,
        request.config,
    )


@pytest.mark.parametrize("seed", range(8))
def test_order_and_spelling_do_not_matter(seed: int) -> None:
    draw = Draw(seed)
    for _ in range(300):
        body = draw.body()
        text = draw.text(body)
        values, tags, key, create, return_seqs, config = told(text)
        records = body["records"]
        assert [value["data"] for value in values] == [record["data"] for record in records], text
        assert [value["$seq"] for value in values] == list(range(7, 7 + len(records)))
        nodes = [
            record.get("node") if record.get("node") is not None else body.get("node") for record in records
        ]
        assert [value.get("$node") for value in values] == nodes, text
        assert (tags or [None] * len(records)) == [record.get("tag") for record in records]
        assert (key, create) == (body.get("idempotency_key"), body.get("create"))
        assert return_seqs is body.get("return_seqs", True)
        assert (config is None) == (body.get("config") is None)


@pytest.mark.parametrize("seed", range(8))
def test_a_name_more_or_twice_is_always_found(seed: int) -> None:
    draw = Draw(100 + seed)
    for _ in range(300):
        body = draw.body()
        noted: list[Misnamed] = []
        place = draw.pick(["top", "record", "twice"])
        if place == "top":
            text = draw.text(draw.shuffled(body | {"tga": draw.data()}))
        elif place == "record":
            body["records"][-1] = draw.shuffled(body["records"][-1] | {"tga": draw.data()})
            text = draw.text(body)
        else:
            name = draw.pick(list(body))
            inside = draw.text(body)[1:-1]
            again = draw.text({name: body[name]})[1:-1]
            text = b"{" + b",".join(draw.pick([[again, inside], [inside, again]])) + b"}"
        check_append(decode_append(text, noted.append), len(text), None)
        (misnamed,) = noted
        if place == "twice":
            assert (misnamed.unknown, misnamed.duplicate) == ([], [name]), text
        else:
            assert (misnamed.unknown, misnamed.duplicate) == (["tga"], []), text
            assert misnamed.did_you_mean == ({"tga": "tag"} if place == "record" else {})


def test_stamps_are_the_server_s() -> None:
    for name in ("$seq", "$ts", "$node", "$tag"):
        for record in ({"data": 1, name: 5}, {name: None, "data": 1, "tag": "x"}):
            with pytest.raises(ApiError) as refusal:
                parse_append(json.dumps({"records": [{"data": 0}, record]}).encode())
            assert refusal.value.detail is not None
            assert refusal.value.detail["unknown"] == [name]


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        (b'{"records":[{"data":1}],"idempotency_key":"k"}', (b'{"records":[{"data":1}]}', b"k")),
        (b'{"idempotency_key":"k","records":[{"data":1}]}', (b'{"records":[{"data":1}]}', b"k")),
        ('{"records":[1],"idempotency_key":"é"}'.encode(), (b'{"records":[1]}', "é".encode())),
        (b'{"records":[{"data":"],\\"idempotency_key\\":\\"k"}]}', None),
        (b'{"records":[{"data":1}],"idempotency_key":7}', None),
        (b'{"records":[{"data":1}], "idempotency_key":"k"}', None),
        (b'{"records":[{"data":1}],"idempotency_key":"k","create":true}', None),
        (b'{"idempotency_key":"k","create":true,"records":[]}', None),
        (b'{"records":[{"data":1}]}', None),
        (b"", None),
    ],
)
def test_a_key_comes_apart_from_its_records(text: bytes, apart: tuple[bytes, bytes] | None) -> None:
    assert key_apart(text) == apart


@pytest.mark.parametrize(
    "text",
    [
        b'{"records":[{"data":1}],"records":[{"data":2}]}',
        b'{"records":[{"data":1}],"node":null,"records":[{"data":2}]}',
        b'{"records":[],"records":[{"data":2}]}',
        b'{"records":[{"data":1}],"r\\u0065cords":[{"data":2}]}',
        b'{"records":null,"records":[{"data":2}]}',
    ],
)
def test_records_that_come_twice(text: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_append(text)
    assert refusal.value.detail == {"duplicate": ["records"]}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"records":[{"data":1}]}x', "invalid_request"),
        (b'{"records":[{"data":1}],}', "invalid_request"),
        (b'{"records":[{"data":1}', "invalid_request"),
        (b'{"records":[{"data":1}]]', "invalid_request"),
        (b'{"rocords":[{"data":1}]}', "invalid_request"),
        (b'{"records":{"data":1}}', "invalid_request"),
        (b'{"records":[1]}', "invalid_request"),
        (b'{"records":"x","node":"]"}', "invalid_request"),
        (b'{"records":[{"data":1,"tag":1}],"x":1}', "invalid_request"),
        (b"[]", "invalid_request"),
        (b'{"records":[%b{"data":1}]}' % (b'{"data":1},' * 10_000), "batch_too_large"),
        (b'{"node":"n","records":[%b1]}' % (b'{"data":1},' * 10_000), "batch_too_large"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_otherwise_is_refused_for_that(text: bytes, code: str) -> None:
    with pytest.raises(ApiError) as refusal:
        check_append(decode_append(text, lambda _: None), len(text), None)
    assert refusal.value.code == code


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t", b"\r"])
def test_white_space_is_left_out(space: bytes) -> None:
    text = b'{"records":[{"data":%b[1,%b2]}],"node":"n"}' % (space, space)
    assert b'"data":[1,2]' in bytes(parse_append(text).batch.render(1, 1))
    assert compact_json(text) == b'{"records":[{"data":[1,2]}],"node":"n"}'


@pytest.mark.parametrize(("records", "is_refused"), [(10_000, False), (10_001, True)])
def test_too_many_are_too_many_whatever_else_is_wrong(records: int, is_refused: bool) -> None:
    noted: list[Misnamed] = []
    text = b'{"records":[%b],"x":1}' % b",".join([b'{"data":1}'] * records)
    if is_refused:
        with pytest.raises(ApiError, match="at most 10000 records"):
            decode_append(text, noted.append)
    else:
        decode_append(text, noted.append)
    assert [misnamed.unknown for misnamed in noted] == [["x"]]


@pytest.mark.parametrize(
    ("text", "is_patient"),
    [
        (b'{"records":[{"data":1}],"disable_backpressure":true}', True),
        (b'{"records":[{"data":1}],"disable_backpressure":false}', False),
        (b'{"records":[{"data":"disable_backpressure"}]}', False),
        (b'{"disable_backpressure":true', False),
        (b'{"records":[{"data":1}]}', False),
        (b"{", False),
    ],
)
def test_who_asks_not_to_be_refused_for_load(text: bytes, is_patient: bool) -> None:
    assert disables_backpressure(text) == is_patient


def test_large_writes_are_not_copied_into_their_records() -> None:
    text = b'{"records":[%b{"data":1}]}' % (b'{"data":"%b"},' % (b"x" * 500) * 100)
    decoded = decode_append(text)
    if isinstance(decoded, Records):
        assert decoded.count == 101
        return
    assert isinstance(decoded, list)
    assert len(decoded) == 101
    assert bytes(decoded[0].data) == b'"%b"' % (b"x" * 500)
