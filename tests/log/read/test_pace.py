"""How fast a topic is written, and when a record was, told from its runs alone."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from tests.log.harness import T0, Lab
from topics.core.config import TopicConfig
from topics.log.read.pace import records_per_second, time_left, written_ms


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


def two_moments(lab: Lab) -> None:
    """1 and 2 at first, 3 to 6 a second later; 1 to 4 are a run."""
    lab.write_each("t", 2)
    lab.clock.advance(1000)
    lab.write_each("t", 4)


def test_what_was_written_at_the_beginning_of_the_last_minute_counts(lab: Lab) -> None:
    two_moments(lab)
    topic = lab.topic("t")
    assert records_per_second(topic, T0 + 61_000) == 4 / 60
    assert records_per_second(topic, T0 + 61_001) == 6 / 600
    assert [written_ms(topic, seq) - T0 for seq in range(1, 7)] == [0, 0, 1000, 1000, 1000, 1000]


def test_time_passes_evenly_in_a_run_that_is_not_in_memory(lab: Lab) -> None:
    for _ in range(3):
        lab.write("t", 0)
        lab.clock.advance(1000)
    lab.write("u", 0)
    lab.checkpoint(everything=True)
    lab.restart(clean=True)
    assert [written_ms(lab.topic("t"), seq) - T0 for seq in (1, 2, 3)] == [0, 1000, 2000]
    assert written_ms(lab.topic("u"), 1) == T0 + 3000


def test_age_takes_what_has_waited_for_longer_than_is_left(lab: Lab) -> None:
    lab.put("t", ttl_ms=10_000)
    lab.write("t", 0)
    topic = lab.topic("t")
    assert time_left(topic, 1, T0 + 5000) == (inf, None)
    assert time_left(topic, 1, T0 + 5001) == (pytest.approx(4.999), "ttl")
    assert time_left(topic, 1, T0 + 20_000) == (0.0, "ttl")


def test_the_first_of_age_and_cap_counts(lab: Lab) -> None:
    lab.put("t", ttl_ms=70_000, cap_records=10)
    lab.write("t", *range(8))
    # Age takes the first record in 10 s, and the cap in 15 s.
    assert time_left(lab.topic("t"), 1, T0 + 60_000) == (pytest.approx(10.0), "ttl")


def test_a_cap_takes_what_lies_further_back_than_there_is_room(lab: Lab) -> None:
    lab.put("t", cap_records=10)
    lab.write("t", *range(8))
    topic, now = lab.topic("t"), T0 + 60_000
    # Room for two more, and eight came in a minute.
    assert time_left(topic, 1, now) == time_left(topic, 0, now) == (pytest.approx(15.0), "cap")
    assert time_left(topic, 3, now) == (pytest.approx(30.0), "cap")
    # As much room as it is behind.
    assert time_left(topic, 4, now) == (inf, None)
    assert time_left(topic, 1, now + 3_600_000) == (inf, None)
    topic.set_config(TopicConfig(cap_records=5))
    assert time_left(topic, 1, now) == (0.0, "cap")
    topic.set_config(TopicConfig(cap_records=10, discard="reject"))
    assert time_left(topic, 1, now) == (inf, None)


def test_the_narrower_of_two_caps_counts_and_the_first_of_cap_and_age(lab: Lab) -> None:
    lab.put("t")
    lab.write("t", *[0] * 60)
    topic, now = lab.topic("t"), T0 + 60_000
    topic.set_config(TopicConfig(cap_records=1000, cap_bytes=75))
    assert time_left(topic, 1, now) == (15.0, "cap")
    topic.set_config(TopicConfig(cap_records=75, ttl_ms=75_000))
    assert time_left(topic, 1, now) == (15.0, "ttl")
    topic.set_config(TopicConfig(cap_records=74, ttl_ms=75_000))
    assert time_left(topic, 1, now) == (14.0, "cap")
