"""Small writes that are taken apart together: only what is exactly a write of records is one."""

from __future__ import annotations

import pytest

from topics.log.write import gather as gathering
from topics.log.write.append_form import compact_json
from topics.log.write.gather import gather, split_plain
from topics.values import ApiError

pytestmark = pytest.mark.usefixtures("both_ways")

PLAIN = b'{"records":[{"data":%d}]}'


@pytest.mark.parametrize(
    "odd",
    [
        b'{"recordz":[{"data":1}]}',
        b'{"records":[{"data":1}]]',
        b'{"records":[{"data":1}',
        b'{"records":[{"data":1,"tga":"x"}]}',
        b'{"records":[{"data":01}]}',
        b'{"records":[]}',
        b'{"records":[{"tag":"a"}]}',
        b'{"records":[{"data":1,"tag":"%b"}]}' % (b"x" * 257),
        b'{"records":[{"data":1,"tag":"%b"}]}' % ("€" * 86).encode(),
        b'{"records":[{"data":1,"node":"%b"}]}' % (b"x" * 129),
        b'{"records":[{"data":1,"meta":7}]}',
        b'{"records":[{"data":1,"meta":{%b}}]}' % b",".join(b'"%d":%d' % (n, n) for n in range(65)),
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":1}],"create":true}',
        b'{"records":[{"data":1}],"node":"n"}',
        b'{"records":[{"data":1}],"records":[{"data":2}]}',
        b"",
    ],
    ids=lambda odd: f"{len(odd)}:{odd[:40]!r}",
)
def test_whatever_else_there_is_is_odd(odd: bytes) -> None:
    assert gather([odd]) == (None, None, [0])
    assert gather([odd, odd]) == (None, None, [0, 1])
    batch, _, indexes = gather([PLAIN % 7, odd, PLAIN % 8])
    assert indexes == [1]
    assert batch is not None
    assert [row.rpartition(b":")[2] for row in bytes(batch.render(1, 5)).splitlines()] == [b"7}", b"8}"]


def test_halves_that_make_a_whole_together_are_odd() -> None:
    assert gather([b'{"records":[{"data":1', b"2}]}"]) == (None, None, [0, 1])


@pytest.mark.parametrize("between", [b"\0", b"\n", b""])
@pytest.mark.parametrize("cut", [b"", b"2", b'"', b'"a', b"[1,"])
def test_one_that_looks_like_several_is_odd(between: bytes, cut: bytes) -> None:
    """However they are put side by side to be taken apart at once."""
    whole = (PLAIN % 1 + between + PLAIN % 2, PLAIN % 1 + between + PLAIN % 2 + between)
    for one in whole:
        assert gather([one]) == (None, None, [0])
        assert gather([PLAIN % 7, one])[2] == [1]
    # As many as there are, if they are counted by what stands between them.
    first = PLAIN % 1 + between + b'{"records":[{"data":' + cut
    second = cut[::-1].replace(b"[", b"]") + b"}]}"
    assert gather([first, second]) == (None, None, [0, 1])


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\n", b"\r"])
def test_blanks_are_nothing_that_a_row_may_have(blank: bytes) -> None:
    bodies = [b'{"records":[{"data":[1,%b2]}]}' % blank, PLAIN % 7]
    assert split_plain(bodies) is None
    batch, _, odd = gather(bodies)
    assert batch is not None
    assert odd == []
    assert b'"data":[1,2]}\n' in bytes(batch.render(1, 5))


@pytest.mark.parametrize("blank", [b"", b" "])
def test_records_travel_whatever_they_have(blank: bytes) -> None:
    bodies = [
        PLAIN % 7,
        b'{"records":[%b{"data":1,"tag":"a","node":"n"}]}' % blank,
        b'{"records":[{"data":2,"meta":{"k":1}},%b{"data":3,"tag":null}]}' % blank,
        b'{"records":[{"tag":"%b","data":4,"node":"%b"}]}' % (b"t" * 256, b"n" * 128),
        '{"records":[{"data":"é","tag":"ä"}]}'.encode(),
        b'{"records":[{"data":5}],%b"create":false}' % blank,
    ]
    batch, counts, odd = gather(bodies)
    assert batch is not None
    assert counts == [1, 1, 2, 1, 1, 1]
    assert odd == []
    assert batch.tags == [None, "a", None, None, "t" * 256, "ä", None]
    assert batch.nodes == [None, "n", None, None, "n" * 128, None, None]
    assert list(batch.meta_lens or []) == [0, 0, 7, 0, 0, 0, 0]
    assert list(batch.data_lens) == [1, 1, 1, 1, 1, 4, 1]


def test_one_of_each_has_no_counts() -> None:
    batch, counts, odd = gather([b'{"records":[{"data":%d,"tag":"a"}]}' % n for n in range(3)])
    assert batch is not None
    assert (batch.count, counts, odd) == (3, None, [])


def test_two_arrays_are_not_the_records_of_one() -> None:
    two = b'{"records":[{"data":1,"tag":"a"}][{"data":2}]}'
    assert gather([two]) == (None, None, [0])
    assert gather([PLAIN % 7, two])[2] == [1]


def test_blanks_are_removed_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def noted(body: bytes) -> bytes:
        asked.append(body)
        return compact_json(body)

    monkeypatch.setattr(gathering, "compact_json", noted)
    spaced = b'{"records": [{"data": "a b", "tag": "t"}]}'
    batch, _, odd = gather([spaced] * 16)
    assert batch is not None
    assert odd == []
    assert bytes(batch.render(1, 5)).count(b'"data":"a b"}\n') == 16
    assert len(asked) == 1
    # One that is no JSON is odd, and no other.
    assert gather([spaced, b'{"records": [{"data": 01}]}', spaced])[2] == [1]


@pytest.mark.parametrize("rest", [b',"\\u0000"', b'],"\\u0000"', b'],"\\u0000",[', b'],"\\u0000",[1'])
@pytest.mark.parametrize("blank", [b"", b" "])
def test_one_that_has_a_border_in_it_is_odd(rest: bytes, blank: bytes) -> None:
    assert gather([PLAIN % 1 + rest, b'{"records":[%b{"data":2,"tag":"a"}]}' % blank])[2] == [0]


def test_a_value_with_a_border_in_it_stays_what_it_is() -> None:
    spaced = b'{"records": [{"data": [["a"], "\\u0000", ["b"]]}]}'
    batch, _, odd = gather([spaced, spaced])
    assert batch is not None
    assert odd == []
    assert bytes(batch.render(1, 5)).count(b'"data":[["a"],"\\u0000",["b"]]}\n') == 2


def test_no_row_has_a_newline_in_it_however_deep() -> None:
    """What is just too deep to have its blanks removed can still be decoded."""

    def nested(depth: int) -> bytes:
        return b'{"records":[{"data":%b\n%b}]}' % (b"[" * depth, b"]" * depth)

    def is_too_deep(depth: int) -> bool:
        try:
            compact_json(nested(depth))
        except ApiError:
            return True
        return False

    low, high = 1, 200_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_too_deep(middle) else (middle, high)
    for depth in range(low - 8, low + 8):
        batch = gather([nested(depth)]).batch
        assert batch is None or bytes(batch.render(1, 5)).count(b"\n") == 1
