"""When seqs went: noted by the second, in few stretches, never narrower than the truth, over restarts too."""

from __future__ import annotations

import random

import pytest

from tests.log.harness import T0, Lab
from topics.log.remove.ledger import MAX_STRETCHES, GoneTimes


def when(lab: Lab, first: int, last: int | None = None) -> tuple[int, int] | None:
    """When they went, counted from the beginning of the test."""
    times = lab.topic("t").gone_times
    found = None if times is None else times.between(first, first if last is None else last)
    return None if found is None else (found[0] and found[0] - T0, found[1] - T0)


@pytest.mark.parametrize(
    ("first", "last", "stretches"), [(6, 7, 1), (5, 6, 2), (14, 15, 1), (15, 16, 2), (1, 20, 1)]
)
def test_side_by_side_is_on_either_side(first: int, last: int, stretches: int) -> None:
    times = GoneTimes()
    times.note(8, 13, 1000, 1000)
    times.note(first, last, 1100, 1100)
    assert len(times.pack()) // 32 == stretches


def test_a_whole_second_later_is_another_stretch() -> None:
    times = GoneTimes()
    times.note(1, 5, 1000, 1000)
    times.note(6, 9, 1999, 1999)
    times.note(10, 12, 2000, 2000)
    assert (times.between(6, 6), times.between(10, 10)) == ((1000, 1999), (2000, 2000))


def test_no_more_are_joined_than_have_to_be() -> None:
    """At first those that took an eighth of the time since: nine of the same moment, and a pair."""
    same, apart = [2**24 * 1000] * 9, [2**k * 1000 for k in range(23, 4, -1)]
    # An eighth of these seven seconds and one; and for a second round, less than a quarter of the time since.
    pair, wider = [8000, 7000], [4600, 3500]
    ages = [*same, *apart, *pair, *wider, 0]
    assert len(ages) == MAX_STRETCHES + 1
    times = GoneTimes()
    for number, age in enumerate(ages):
        times.note(10 * number, 10 * number, 2**40 - age, 2**40 - age)
    assert len(times.pack()) // 32 == MAX_STRETCHES * 3 // 4


def test_a_time_that_is_not_known_stays_unknown() -> None:
    times = GoneTimes()
    times.note(1, 100, 0, T0)
    for number in range(200):
        times.note(200 + number, 200 + number, T0 + 10_000 * number, T0 + 10_000 * number)
    assert times.between(50, 50) == (0, T0)
    assert times.between(100, 250)[0] == 0  # type: ignore[index]


def test_nothing_above_a_rewound_head_is_remembered() -> None:
    times = GoneTimes()
    times.note(1, 5, 1000, 1000)
    times.note(400, 500, 9000, 9000)
    times.cut(400)
    assert times.between(400, 400) == (9000, 9000)
    assert times.between(401, 1000) is None
    times.cut(3)
    assert times.between(3, 3) == (1000, 1000)
    assert times.between(4, 1000) is None


def test_a_cap_that_is_made_smaller_takes_records_then(lab: Lab) -> None:
    lab.write("t", 1, 2, 3)
    lab.clock.advance(7000)
    lab.put("t", cap_records=1)
    assert when(lab, 1, 2) == (7000, 7000)
    lab.restart()
    assert when(lab, 1, 2) == (7000, 7000)


def test_what_became_too_old_while_nobody_looked_went_at_its_own_time(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    lab.write("t", 1)
    lab.clock.advance(300)
    lab.write("t", 2)
    lab.kill()
    lab.clock.advance(3_600_000)
    lab.open()
    assert lab.seqs("t") == []
    assert when(lab, 1, 2) == (1001, 1301)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("checkpoints", [0, 1, 3])
def test_caps_age_and_deletes_are_noted_and_known_after_a_restart(
    lab: Lab, checkpoints: int, clean: bool
) -> None:
    losing(lab)
    check_times(lab)
    for _ in range(checkpoints):
        lab.checkpoint(everything=True)
    lab.clock.advance(1000)
    lab.restart(clean=clean)
    check_times(lab)


def losing(lab: Lab) -> None:
    """A cap, a delete of the front, one by tag, and a TTL take records, five seconds apart."""
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


def check_times(lab: Lab) -> None:
    assert when(lab, 1, 3) == (5000, 5000)
    assert when(lab, 4, 5) == (10_000, 10_000)
    assert when(lab, 16) == (15_000, 15_000)
    # With the new TTL, and not when they became older than it is.
    assert when(lab, 7, 13) == (20_000, 20_000)
    assert when(lab, 17, 99) is None


def test_stretches_are_bounded_and_the_truth_lies_within_them() -> None:
    rng, times, truth, ms, first = random.Random(3), GoneTimes(), {}, 1000, 1
    for _ in range(500):
        ms += rng.choice((1, 500, 5000))
        last = first + rng.randrange(4)
        times.note(first, last, ms, ms)
        truth |= dict.fromkeys(range(first, last + 1), ms)
        first = last + 1
        assert len(times.pack()) // 32 <= MAX_STRETCHES
    for seq, went in truth.items():
        found = times.between(seq, seq)
        assert found is not None
        assert found[0] <= went <= found[1]
