"""Small writes that are taken apart together: only what is exactly a write of plain records is one."""

from __future__ import annotations

import pytest

from topics.log.write.gather import gather, split_plain

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
        b"",
    ],
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
