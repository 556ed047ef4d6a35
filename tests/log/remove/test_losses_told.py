"""Losses that readers were told of: a day of them, and of so many topics at most."""

from __future__ import annotations

from topics.log.remove.ledger import HOUR_MS, KEPT_HOURS, MAX_TOPICS, LossesTold


class Now:
    ms = 100 * HOUR_MS

    def __call__(self) -> int:
        return self.ms


def test_what_is_older_than_a_day_is_forgotten() -> None:
    now = Now()
    losses = LossesTold(now)
    losses.note("t", "cap", 5)
    now.ms += 10 * HOUR_MS
    losses.note("t", "ttl", 3)
    losses.note("u", "cap", 1)
    ((first, _), (second, told)) = losses.recent()
    assert (first, second) == ("u", "t")
    assert (told.tombstones, told.missed, told.reason, told.last_ms) == (2, 8, "ttl", now.ms)
    now.ms += 15 * HOUR_MS
    assert [(topic, told.missed) for topic, told in losses.recent()] == [("u", 1), ("t", 3)]
    now.ms += 10 * HOUR_MS
    assert list(losses.recent()) == []


def test_an_hour_is_forgotten_when_a_day_has_passed() -> None:
    now = Now()
    losses = LossesTold(now)
    losses.note("t", "cap", 5)
    now.ms += (KEPT_HOURS - 1) * HOUR_MS
    assert [topic for topic, _ in losses.recent()] == ["t"]
    now.ms += HOUR_MS
    assert list(losses.recent()) == []


def test_so_many_topics_are_remembered_and_no_more() -> None:
    losses = LossesTold(Now())
    losses.note("first", "cap", 1)
    for number in range(MAX_TOPICS - 1):
        losses.note(f"t{number}", "cap", 1)
    losses.note("first", "cap", 1)
    losses.note("one-more", "cap", 1)
    names = [topic for topic, _ in losses.recent()]
    assert len(names) == MAX_TOPICS
    assert names[:2] == ["one-more", "first"]
    assert "t0" not in names
