"""When seqs went: noted by the second, in few stretches, and never narrower than the truth."""

from __future__ import annotations

import random

from tests.log.harness import T0, Lab
from topics.log.remove.gone_times import MAX_STRETCHES, GoneTimes


def test_what_goes_within_a_second_is_one_stretch() -> None:
    times = GoneTimes()
    times.note(1, 5, 1000)
    times.note(6, 9, 1900)
    times.note(10, 12, 9000)
    assert times.between(1, 3) == times.between(7, 9) == (1000, 1900)
    assert times.between(10, 12) == (9000, 9000)
    assert times.between(5, 11) == (1000, 9000)
    assert times.between(13, 20) is None


def test_a_whole_second_later_is_another_stretch() -> None:
    times = GoneTimes()
    times.note(1, 5, 1000)
    times.note(6, 9, 1999)
    times.note(10, 12, 2000)
    assert (times.between(6, 6), times.between(10, 10)) == ((1000, 1999), (2000, 2000))


def test_stretches_are_bounded_and_the_truth_lies_within_them() -> None:
    rng, times, truth, ms, first = random.Random(3), GoneTimes(), {}, 1000, 1
    for _ in range(500):
        ms += rng.choice((1, 500, 5000))
        last = first + rng.randrange(4)
        times.note(first, last, ms)
        truth |= dict.fromkeys(range(first, last + 1), ms)
        first = last + 1
    assert len(times._stretches) // 4 == MAX_STRETCHES
    for seq, went in truth.items():
        found = times.between(seq, seq)
        assert found is not None
        assert found[0] <= went <= found[1]
    assert times.between(first - 1, first - 1) == (ms, ms)


def test_caps_age_and_deletes_are_noted(lab: Lab) -> None:
    lab.put("t", cap_records=10)
    lab.write("t", *range(10))
    assert lab.topic("t").gone_times is None
    lab.clock.advance(5000)
    lab.write("t", *range(3))
    lab.clock.advance(5000)
    lab.delete("t", before=6)
    lab.clock.advance(5000)
    lab.write("t", {"data": 1, "tag": "x"}, {"data": 1, "tag": "y"}, {"data": 1, "tag": "x"})
    lab.delete("t", match="x")
    lab.clock.advance(5000)
    lab.put("t", ttl_ms=6000)
    times = lab.topic("t").gone_times
    assert times is not None
    assert times.between(1, 3) == (T0 + 5000, T0 + 5000)
    assert times.between(4, 5) == (T0 + 10_000, T0 + 10_000)
    assert times.between(16, 16) == (T0 + 15_000, T0 + 15_000)
    assert times.between(7, 13) == (T0 + 20_000, T0 + 20_000)
