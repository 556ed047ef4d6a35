"""Frames that are too large, and too many that ask for nothing."""

from __future__ import annotations

import pytest
from hyperframe.frame import DataFrame, PingFrame

from topics.http.http2 import MOST, MOST_FRAME_BYTES, PER_S, Calm, FrameSizes

SOUND = b"".join(
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        PingFrame(0, opaque_data=b"12345678").serialize(),
        DataFrame(1, b"").serialize(),
        DataFrame(1, bytes(MOST_FRAME_BYTES)).serialize(),
    ]
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, len(SOUND)])
def test_the_first_frame_that_is_too_large(size: int) -> None:
    sizes = FrameSizes()
    assert all(sizes.fit(SOUND[at : at + size]) for at in range(0, len(SOUND), size))
    large = (MOST_FRAME_BYTES + 1).to_bytes(3)
    assert not all(sizes.fit(large[at : at + size]) for at in range(0, 3, size))


def test_a_thousand_at_once_and_then_a_few_each_second() -> None:
    now = 0.0
    calm = Calm(lambda: now)
    assert all(calm.spend(1) for _ in range(int(MOST)))
    assert not calm.spend(1)
    now = 2.0
    assert all(calm.spend(1) for _ in range(int(2 * PER_S) - 1))
    assert not calm.spend(1)


def test_answers_earn_and_nobody_saves_more_than_a_thousand() -> None:
    now = 0.0
    calm = Calm(lambda: now)
    calm.earn(5000)
    assert calm.spend(int(MOST))
    calm.earn(10)
    assert calm.spend(10)
    assert not calm.spend(1)
    now = 1e6
    assert calm.spend(1)
    assert not calm.spend(int(MOST) + 1)
