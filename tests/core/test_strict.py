"""Strict decoding: a body that fits is decoded in one go, and mistakes in others are found."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from topics.core import ApiError, StrictDecoder, UnknownFields, has_no_duplicates, strict


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    id: str = ""
    batch: int = 0


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    seq: int = 0
    name: str | None = None
    flag: bool = False
    inner: Inner | None = None
    many: list[Inner] = []
    each: dict[str, Inner] = {}
    opaque: Raw = Raw(b"")


class Flat(msgspec.Struct, forbid_unknown_fields=True):
    seq: int = 0
    limit: int = 0
    node: str | list[str] | None = None


FORM, FLAT = StrictDecoder(Outer), StrictDecoder(Flat)


def read(body: bytes | str, form: StrictDecoder[Any] = FORM) -> tuple[Any, UnknownFields]:
    """What it says, and what does not belong there."""
    noted: list[UnknownFields] = []
    value = form.read(body.encode() if isinstance(body, str) else body, noted.append)
    assert len(noted) <= 1
    return value, noted[0] if noted else UnknownFields()


@pytest.mark.parametrize(
    ("body", "unknown", "duplicate"),
    [
        ("{}", [], []),
        ('{"seq":1,"name":"a:b"}', [], []),
        ('{ "seq" : 1 , "name" : "\\"seq\\":2" }', [], []),
        ('{"seq":1,"seq":2}', [], ["seq"]),
        ('{"seq" :1,\n"seq"\t: 2}', [], ["seq"]),
        ('{"seq":1,"\\u0073eq":2}', [], ["seq"]),
        ('{"sep":1,"name":"x"}', ["sep"], []),
        ('{"":1," ":2,"\\u0000":3}', ["", " ", "\0"], []),
        ('{"x":1,"x":2}', ["x"], ["x"]),
        ('{"inner":{"id":"a","idd":"b","id":"c"}}', ["idd"], ["id"]),
        ('{"many":[{"id":"a"},{"x":1},{"batch":1,"batch":2}]}', ["x"], ["batch"]),
        ('{"each":{"a":{},"b":{"y":1},"a":{}}}', ["y"], ["a"]),
        ('{"opaque":{"a":1,"a":2,"seq":[{"a":1,"a":2}]}}', [], []),
        ('{"opaque":[{"a":1,"a":2}],"name":"{\\"a\\":1}"}', [], []),
        ('{"\\u00e9":1,"é":2}', ["é"], ["é"]),
    ],
)
def test_names_that_do_not_belong(body: str, unknown: list[str], duplicate: list[str]) -> None:
    for form_body in (body, f" {body}\n"):
        _, unknown_fields = read(form_body)
        assert (unknown_fields.unknown, unknown_fields.duplicate) == (unknown, duplicate)


def test_what_belongs_is_read_all_the_same() -> None:
    value, unknown_fields = read(
        '{"seq":1,"x":[1],"inner":{"id":"a","y":0},"many":[{"z":1,"batch":3}],"seq":5}'
    )
    assert (value.seq, value.inner, value.many) == (5, Inner("a"), [Inner(batch=3)])
    assert unknown_fields.unknown == ["x", "y", "z"]
    value, _ = read('{"x":1,"opaque":{"b":1e400,"a":0.10,"b":[]}}')
    assert bytes(value.opaque) == b'{"b":1e400,"a":0.10,"b":[]}'


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '{"seq":"x"}', '{"seq":1}{}', '{"inner":[]}', '{"seq":}']
)
def test_what_is_wrong_otherwise_is_refused(body: str) -> None:
    with pytest.raises(ApiError) as refusal:
        read(body)
    assert refusal.value.code == "invalid_request"


def test_it_is_noted_before_a_wrong_value_is_refused() -> None:
    noted: list[UnknownFields] = []
    with pytest.raises(ApiError, match="Expected `int`"):
        FORM.read(b'{"seq":"x","lmit":3,"name":"a"}', noted.append)
    assert noted[0].unknown == ["lmit"]


def test_bodies_that_differ_in_numbers_are_not_taken_for_one_another() -> None:
    """Those that were seen before are recognised by what does not change; names never are among that."""
    for seq in range(50):
        assert read(f'{{"seq":{seq},"limit":{seq}}}', FLAT)[0] == Flat(seq, seq)
    assert read('{"seq":1,"limi":2}', FLAT)[1].unknown == ["limi"]
    assert read('{"seq":1,"limit2":2}', FLAT)[1].unknown == ["limit2"]
    assert read('{"seq":1,"seq":2}', FLAT)[1].duplicate == ["seq"]
    assert read('{"limit":1,"limit":2}', FLAT)[1].duplicate == ["limit"]
    assert read('{"seq":1,"limit":2,"node":"a","node":"b"}', FLAT)[1].duplicate == ["node"]
    assert read('{"seq":1,"limit":2,"node":"b"}', FLAT)[0] == Flat(1, 2, "b")
    assert read('{"seq":1,"limit":2,"node":"a"}', FLAT)[0] == Flat(1, 2, "a")


# --- against a reader that takes its time -----------------------------------------------------------------


class Pairs(list[tuple[str, Any]]):
    """An object with all its members."""


def expected(value: Any, names: dict[str, Any] | None, found: tuple[set[str], set[str]]) -> None:
    """`names`: what may be in there; None where nothing is looked at."""
    if names is None or not isinstance(value, Pairs):
        return
    seen: set[str] = set()
    for name, _ in value:
        if name in seen:
            found[1].add(name)
        seen.add(name)
        if "*" not in names and name not in names:
            found[0].add(name)
    # Of what comes twice the last one counts, so that only that one is looked into.
    for name, inner in dict(value).items():
        within = names.get("*", names.get(name))
        for one in inner if isinstance(inner, list) and not isinstance(inner, Pairs) else [inner]:
            expected(one, within, found)


INNER = {"id": None, "batch": None}
OUTER: dict[str, Any] = {
    "seq": None,
    "name": None,
    "flag": None,
    "inner": INNER,
    "many": INNER,
    "each": {"*": INNER},
    "opaque": None,
}


class Draw:
    """Bodies by chance: mostly right, often enough wrong, in many spellings."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def space(self) -> str:
        return self.pick(["", "", "", " ", "\n", "\t "])

    def name(self, *known: str) -> str:
        name = self.pick([*known * 3, "x", "Seq", "é", "", ":", 'a"b', "id1"])
        text = json.dumps(name, ensure_ascii=self.pick([True, False]))
        if name and name.isascii() and name.isalpha() and self.random.random() < 0.1:
            text = f'"\\u{ord(name[0]):04x}{name[1:]}"'
        return text

    def object(self, *members: tuple[str, Any]) -> str:
        return "{" + ",".join(f"{n}{self.space()}:{self.space()}{v}" for n, v in members) + self.space() + "}"

    def inner(self) -> str:
        return self.object(*((self.name("id", "batch"), "null") for _ in range(self.random.randint(0, 3))))

    def opaque(self) -> str:
        return self.pick(
            ['{"a":1,"a":{"b":[]}}', '"a:b"', '[{"x":1,"x":2}]', '"\\\\"', "1", '"}{"', '"\\":"']
        )

    def value(self, name: str) -> str:
        kinds = {
            "inner": self.inner,
            "many": lambda: f"[{','.join(self.inner() for _ in range(self.random.randint(0, 2)))}]",
            "each": lambda: self.object((self.name("t", "u"), self.inner()), (self.name("t"), self.inner())),
        }
        return kinds.get(json.loads(name), self.opaque)()

    def body(self) -> str:
        names = [self.name(*OUTER) for _ in range(self.random.randint(0, 5))]
        return self.space() + self.object(*((name, self.value(name)) for name in names)) + self.space()


class Anything(msgspec.Struct, forbid_unknown_fields=True):
    """The same names, and no opinion on the values of the others."""

    seq: Raw = Raw(b"")
    name: Raw = Raw(b"")
    flag: Raw = Raw(b"")
    inner: AnyInner | None = None
    many: list[AnyInner] = []
    each: dict[str, AnyInner] = {}
    opaque: Raw = Raw(b"")


class AnyInner(msgspec.Struct, forbid_unknown_fields=True):
    id: Any = None
    batch: Any = None


@pytest.mark.parametrize("seed", range(8))
def test_random_bodies(seed: int) -> None:
    draw, form = Draw(seed), StrictDecoder(Anything)
    for _ in range(400):
        body = draw.body()
        found: tuple[set[str], set[str]] = (set(), set())
        expected(json.loads(body, object_pairs_hook=Pairs), OUTER, found)
        _, unknown_fields = read(body, form)
        assert (set(unknown_fields.unknown), set(unknown_fields.duplicate)) == found, body


@pytest.mark.parametrize("seed", range(4))
def test_what_is_certain_without_a_look_is_true(seed: int) -> None:
    draw = Draw(1000 + seed)
    for _ in range(500):
        body = draw.body()
        if has_no_duplicates(body.encode()):
            value = json.loads(body, object_pairs_hook=Pairs)
            objects = [value, *(inner for _, inner in value if isinstance(inner, Pairs))]
            assert all(len(dict(one)) == len(one) for one in objects), body


def test_a_body_of_countless_typos_is_refused_for_that() -> None:
    names = ",".join(f'"k{n}":{n}' for n in range(10_001))
    for body in (f'{{"seq":1,{names}}}', '{"seq":1,' + ",".join(['"k0":1'] * 10_001) + "}"):
        told: list[UnknownFields] = []
        with pytest.raises(ApiError, match="at most 10000 names") as caught:
            FORM.read(body.encode(), told.append)
        assert caught.value.detail == {"max": 10_000}
        assert told[0].unknown[:1] == ["k0"]
        assert len(told[0].unknown) <= 100
    names = ",".join(f'"k{n}":{n}' for n in range(9_998))
    _, unknown_fields = read(f'{{"seq":1,{names},"seq":2}}')
    assert (len(unknown_fields.unknown), unknown_fields.duplicate) == (100, ["seq"])


def test_the_number_of_known_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "_MAX_PATTERNS", 3)
    form = StrictDecoder(Inner)
    for length in range(20):
        assert form.read(b'{"id":"%b"}' % (b"!" * length)).id == "!" * length
        assert len(form._patterns) <= 3
    assert form._patterns


def test_no_integer_is_too_long_to_be_read() -> None:
    """Python reads none of more than 4300 digits, and what is limited has to be told from what is wrong."""
    for digits in (1000, 4300, 4301, 30_000):
        seq = FORM.read(b'{"seq":%b}' % (b"7" * digits)).seq
        assert seq >= 10**999
        assert FORM.read(b'{"name":"%b","seq":-%b}' % (b"7" * digits, b"7" * digits)).seq <= -(10**999)
    told = "7" * 5000
    kept = FORM.read(b'{"seq":%b,"name":"%b","opaque":"\\"%b"}' % ((told.encode(),) * 3))
    assert (kept.name, bytes(kept.opaque)) == (told, b'"\\"' + told.encode() + b'"')
    # Only where an integer is wanted: nobody else's digits are touched.
    kept = FORM.read(b'{"seq":%b,"opaque":[%b,{"seq":%b}],"many":[{"batch":%b}]}' % ((told.encode(),) * 4))
    assert bytes(kept.opaque) == f'[{told},{{"seq":{told}}}]'.encode()
    assert kept.many[0].batch >= 10**999
    with pytest.raises(ApiError, match="Expected `str"):
        FORM.read(b'{"seq":%b,"inner":{"id":1}}' % (b"7" * 5000))
    with pytest.raises(ApiError):
        FORM.read(b'{"seq":%b.5}' % (b"7" * 5000))
