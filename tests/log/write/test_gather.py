"""Small writes that are taken apart together: only what is exactly a write of plain records is one."""

from __future__ import annotations

import pytest

from topics.log.write.gather import gather

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
