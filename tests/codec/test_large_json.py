"""A large JSON text, gone through in pieces: it comes out as it does in one go, wherever the pieces end."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from topics.codec import large_json
from topics.codec.large_json import LARGE_BYTES, ItemLimits, compact_in_steps, cut_out
from topics.core.errors import ApiError

TEXTS = ["", "\\", '"', "a b", "[{,", '\\"', "é\\\\", "\n", "]}", "x" * 9]


def too_many() -> ApiError:
    return ApiError("batch_too_large", "too many")


def too_large(index: int) -> ApiError:
    return ApiError("record_too_large", f"records[{index}]")


WIDE = ItemLimits(1000, too_many, 1000, too_large)


def squeezed(text: bytes, most_bytes: int = LARGE_BYTES) -> bytes:
    return compact_in_steps(text, most_bytes, too_many)


@pytest.fixture(params=[1, 2, 3, 16, 64])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "PIECE_BYTES", request.param)


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(6 if depth < 4 else 4)
    if kind == 4:
        return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 5:
        names = chance.sample(["a", "b\\", 'c"', "records"], chance.randrange(4))
        return {name: any_value(chance, depth + 1) for name in names}
    return (chance.choice(TEXTS), chance.randrange(100), None, 1.5)[kind]


def any_text(chance: random.Random) -> bytes:
    members = [("records", [any_value(chance) for _ in range(chance.randrange(6))]), ("x", any_value(chance))]
    chance.shuffle(members)
    indent = chance.choice([None, 1, 2])
    return json.dumps(dict(members), indent=indent, ensure_ascii=chance.random() < 0.5).encode()


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("seed", range(20))
def test_white_space_goes_and_nothing_else(seed: int) -> None:
    text = any_text(random.Random(seed))
    assert squeezed(text) == msgspec.json.format(text, indent=-1)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("seed", range(20))
def test_an_array_is_cut_out_whole(seed: int) -> None:
    text = any_text(random.Random(seed))
    cut = cut_out(text, "records", WIDE)
    around = json.loads(cut.around)
    assert around["records"] == []
    for piece, count in cut.pieces:
        items = json.loads(b"[%b]" % piece)
        assert len(items) == count
        around["records"] += items
    assert around == json.loads(text)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("text", [b"[1 2]", b"[tru e]", b"[- 1]", b"[1 \n\t e5]", b'{"a":1  2}'])
def test_white_space_inside_of_a_value_is_not_lost(text: bytes) -> None:
    with pytest.raises(ApiError, match="not valid JSON"):
        squeezed(text)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("text", [b'"a b"', b'{"a" : "1 2" , "b":[ 1 , 2 ]}', b" { } ", b'["\\" 1 2"]'])
def test_white_space_elsewhere_is(text: bytes) -> None:
    assert squeezed(text) == msgspec.json.format(text, indent=-1)


def test_only_what_is_left_is_too_much() -> None:
    assert squeezed(b"[" + b" " * 100 + b"1234]", 6) == b"[1234]"
    with pytest.raises(ApiError, match="too many"):
        squeezed(b"[" + b" " * 100 + b"12345]", 6)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("named", [b'"records"', b'"\\u0072ecords"', b'"rec\\u006Frds"'])
def test_a_name_may_be_spelled_in_any_way(named: bytes) -> None:
    cut = cut_out(b'{"a":["x"],%b:[1,[2],{"records":[3]}],"z":[]}' % named, "records", WIDE)
    assert cut.around == b'{"a":["x"],%b:[],"z":[]}' % named
    assert b",".join(piece for piece, _ in cut.pieces) == b'1,[2],{"records":[3]}'


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize(
    "text",
    [b'{"a":{"records":[1]}}', b'{"records":{"a":[1]}}', b'{"a":"records","b":[1]}', b"{}", b'{"a":1}'],
)
def test_where_there_is_no_such_array_nothing_is_cut(text: bytes) -> None:
    cut = cut_out(text, "records", WIDE)
    assert (cut.around, cut.pieces) == (text, [])


@pytest.mark.usefixtures("_pieces")
def test_items_have_limits() -> None:
    limits = ItemLimits(3, too_many, 4, too_large)
    assert sum(count for _, count in cut_out(b'{"records":[1,22,4444]}', "records", limits).pieces) == 3
    cut = cut_out(b'{"records":[1,2,3,4],"a":5}', "records", limits)
    assert cut.too_many is not None
    assert cut.too_many.message == "too many"
    assert cut.around == b'{"records":[],"a":5}'


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("index", range(3))
def test_an_item_that_is_too_large_is_told_with_what_is_around(index: int) -> None:
    items = [b"1", b"2", b"3"]
    items[index] = b"55555"
    limits = ItemLimits(3, too_many, 4, too_large)
    cut = cut_out(b'{"records":[%b],"a":5}' % b",".join(items), "records", limits)
    assert cut.too_many is None
    assert cut.too_large is not None
    assert cut.too_large.message == f"records[{index}]"
    assert sum(count for _, count in cut.pieces) <= index
    assert cut.around == b'{"records":[],"a":5}'


@pytest.mark.usefixtures("_pieces")
def test_items_are_counted_though_one_is_too_large() -> None:
    limits = ItemLimits(3, too_many, 4, too_large)
    for text in (b"55555,2,3,4", b"1,2,3,55555", b"1,2,55555,4"):
        assert cut_out(b'{"records":[%b]}' % text, "records", limits).too_many is not None
    assert cut_out(b'{"records":[55555]}', "records", ItemLimits(1, too_many, 4, too_large)).too_many is None


def test_what_stands_around_the_array_is_small() -> None:
    text = b'{"records":[1],"x":"' + b"x" * LARGE_BYTES + b'"}'
    with pytest.raises(ApiError, match="without its records"):
        cut_out(text, "records", WIDE)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("text", [b"[1]", b"  [1]", b"1", b'"records"'])
def test_it_has_to_be_an_object(text: bytes) -> None:
    with pytest.raises(ApiError, match="must be a JSON object"):
        cut_out(text, "records", WIDE)


@pytest.mark.usefixtures("_pieces")
def test_an_array_that_does_not_end_is_a_mistake() -> None:
    with pytest.raises(ApiError, match="ends too soon"):
        cut_out(b'{"records":[1,2', "records", WIDE)


@pytest.mark.usefixtures("_pieces")
def test_a_comma_too_many_stays_to_be_seen() -> None:
    assert cut_out(b'{"records":[1,]}', "records", WIDE).pieces[-1] == (b"", 1)


def test_what_is_around_may_be_as_large_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"a":1,"records":[1,2,3]}'
    around = b'{"a":1,"records":[]}'
    monkeypatch.setattr(large_json, "LARGE_BYTES", len(around))
    assert cut_out(text, "records", WIDE).around == around
    monkeypatch.setattr(large_json, "LARGE_BYTES", len(around) - 1)
    with pytest.raises(ApiError, match="without its records"):
        cut_out(text, "records", WIDE)
