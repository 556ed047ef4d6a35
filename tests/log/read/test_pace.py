"""How fast a topic is written, and when a record was, told from its runs alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import T0, Lab
from topics.log.read.pace import records_per_second, written_ms


@pytest.mark.parametrize("sealed", [False, True])
def test_rate_and_times(make_lab: Callable[..., Lab], sealed: bool) -> None:
    lab = make_lab(hot_bytes=1 if sealed else 1 << 20)
    for _ in range(20):
        lab.write("t", *({"data": n} for n in range(10)))
        lab.clock.advance(10_000)
    if sealed:
        lab.checkpoint(everything=True)
    topic, now = lab.topic("t"), T0 + 200_000
    # One a second, however the records lie in runs; where time is taken to pass evenly, about that.
    assert records_per_second(topic, now) == pytest.approx(1.0, rel=0.3)
    assert records_per_second(topic, now + 300_000) == pytest.approx(200 / 600, rel=0.3)
    assert records_per_second(topic, now + 3_600_000) == 0.0
    for seq in (1, 55, 101, 200):
        assert written_ms(topic, seq) == pytest.approx(T0 + (seq - 1) // 10 * 10_000, abs=12_000)
    assert written_ms(topic, 201) == now - 10_000
