"""A clock that is set, forward or back, in flight or over a restart: time goes on, and nothing comes back."""

from __future__ import annotations

import logging

import pytest

from tests.log.harness import Lab, gap, records
from tests.log.test_clock_mark import lose_power
from topics.log.clock import AHEAD_MS, TOLD_FROM_MS
from topics.log.write.operation import CallbackOp

DAY_MS = 86_400_000
TEN_DAYS_MS = 10 * DAY_MS
TTL_MS = 60_000
ENDINGS = ("none", "stop", "kill", "power")


def end(lab: Lab, how: str) -> None:
    if how == "power":
        lab.engine.queue.sync_journal()
        lose_power(lab)
    elif how != "none":
        lab.restart(clean=how == "stop")


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """With topics that lose nothing."""
    for name in ("t", "old", "ahead", "other"):
        lab.put(name, durability="fsync")
    return lab


def configure(lab: Lab, **config: int) -> None:
    lab.put("t", durability="fsync", **config)


def times(lab: Lab, name: str) -> list[int]:
    return [record["$ts"] for record in records(lab.diff(name))]


@pytest.mark.parametrize("how", ENDINGS)
def test_times_never_fall_in_a_topic_and_follow_the_clock_in_others(lab: Lab, how: str) -> None:
    lab.write("old", 1)
    lab.clock.step(TEN_DAYS_MS)
    lab.write("ahead", 1)
    ahead = lab.clock.now_ms()
    lab.clock.step(-TEN_DAYS_MS)
    end(lab, how)
    lab.clock.advance(5)
    lab.put("new", durability="fsync")
    for name in ("old", "ahead", "new"):
        lab.write(name, 2)
    end(lab, how)
    now = lab.clock.now_ms()
    assert times(lab, "ahead") == [ahead, ahead]
    assert times(lab, "old") == [now - 5, now]
    assert times(lab, "new") == [now]


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("sealed", [False, True])
def test_age_goes_by_the_clock_again_once_it_is_corrected(lab: Lab, how: str, sealed: bool) -> None:
    lab.clock.step(TEN_DAYS_MS)
    lab.write("other", 1)
    lab.clock.step(-TEN_DAYS_MS)
    configure(lab, ttl_ms=TTL_MS)
    lab.write("t", 1)
    if sealed:
        lab.checkpoint(everything=True)
    end(lab, how)
    lab.clock.advance(TTL_MS)
    assert lab.seqs("t") == [1]
    lab.clock.advance(1)
    assert gap(lab.diff("t")) == (1, 1, "ttl")


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("first", ENDINGS)
def test_what_age_has_taken_stays_gone(lab: Lab, first: str, how: str) -> None:
    configure(lab, ttl_ms=TTL_MS)
    lab.write("t", 1, 2)
    lab.clock.step(TEN_DAYS_MS)
    assert gap(lab.diff("t")) == (1, 2, "ttl")
    lab.clock.step(-TEN_DAYS_MS)
    end(lab, first)
    lab.write("t", 3)
    end(lab, how)
    assert lab.seqs("t") == [3]
    assert gap(lab.diff("t")) == (1, 2, "ttl")


@pytest.mark.parametrize("how", ENDINGS)
def test_replay_ages_a_topic_that_is_ahead_as_it_was_aged(lab: Lab, how: str) -> None:
    """Its frames say both: the time of its records, and what time it was."""
    lab.write("t", 1)
    lab.clock.step(DAY_MS)
    lab.write("t", 2)
    lab.clock.step(-DAY_MS)
    configure(lab, ttl_ms=TTL_MS)
    lab.write("t", 3)
    expected = lab.state("t")
    end(lab, how)
    assert lab.state("t") == expected
    assert expected["seqs"] == [1, 2, 3]


@pytest.mark.parametrize("how", ENDINGS)
def test_windows_of_keys_do_not_wait_for_the_clock_to_come_again(lab: Lab, how: str) -> None:
    configure(lab, idempotency_window_ms=TTL_MS)
    lab.clock.step(TEN_DAYS_MS)
    lab.write("t", 1, key="ahead")
    lab.clock.step(-TEN_DAYS_MS)
    lab.write("t", 2, key="after")
    end(lab, how)
    lab.clock.advance(TTL_MS)
    for key, first in (("ahead", 1), ("after", 2)):
        again = lab.write("t", "again", key=key)
        assert (again.deduped, again.first_seq) == (True, first)
    end(lab, how)
    lab.clock.advance(1)
    for key in ("ahead", "after"):
        assert not lab.write("t", "again", key=key).deduped


def test_what_waits_comes_before_the_time_that_goes_back(lab: Lab) -> None:
    """In the journal, too: a restore to a moment ends where that was over."""
    lab.clock.step(TEN_DAYS_MS)
    engine, shown = lab.engine, lab.engine.now()
    engine.queue.submit(CallbackOp([], None, lambda _: None, lambda _: None, sync=False))
    lab.clock.step(-TEN_DAYS_MS)
    assert engine.now() == shown
    engine.queue.flush()
    assert engine.now() == lab.clock.now_ms()


def test_a_mark_that_was_under_way_when_the_clock_was_set_back_covers_nothing(lab: Lab) -> None:
    """It is written before the step, and its sync ends behind it: what goes by age then needs another."""
    configure(lab, ttl_ms=TTL_MS)
    engine = lab.engine
    lab.clock.step(TEN_DAYS_MS)
    lab.write("t", 1)
    lab.clock.advance(TTL_MS + 1)
    assert gap(lab.diff("t")) == (1, 1, "ttl")
    lab.clock.advance(AHEAD_MS - 1)
    engine.clock_mark.extend(engine.now())
    engine.queue.flush()
    assert engine.queue.effects.unsynced
    lab.clock.step(-TEN_DAYS_MS)
    assert engine.now() == lab.clock.now_ms()
    engine.queue.sync_now()
    lab.put("u", durability="fsync", ttl_ms=TTL_MS)
    lab.write("u", 1)
    lab.clock.advance(TTL_MS + 1)
    assert gap(lab.diff("u")) == (1, 1, "ttl")
    lab.clock.advance(-TTL_MS)
    lose_power(lab, synced=engine.journal.position)
    assert gap(lab.diff("u")) == (1, 1, "ttl")


# --- being told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ENDINGS)
def test_time_that_is_ahead_is_told(lab: Lab, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "topics")
    lab.clock.step(TEN_DAYS_MS)
    lab.write("ahead", 1)
    lab.clock.step(-TEN_DAYS_MS)
    end(lab, how)
    lab.write("other", 1)
    lead = lab.engine.clock_lead
    assert lead.ms() == lead.told_ms() == TEN_DAYS_MS
    told = [line for line in caplog.messages if "ahead of the clock" in line]
    # An orderly stop looks at the clock once more: then it is told by both processes.
    assert len(told) == (2 if how == "stop" else 1)
    assert all(
        line.startswith('in topic "ahead", time is ahead of the clock by 864000 seconds') for line in told
    )
    assert any("the clock was set back from" in line for line in caplog.messages)
    lab.clock.step(TEN_DAYS_MS - TOLD_FROM_MS)
    assert lead.ms() == TOLD_FROM_MS
    assert lead.told_ms() == 0
    lab.clock.step(-1)
    assert lead.told_ms() == TOLD_FROM_MS + 1
