"""Cursors of topics that are gone: each is counted once, and no more of them stay than may."""

from __future__ import annotations

import pytest

from topics.flow import kept_cursors as module
from topics.flow.kept_cursors import KeptCursors, StoredCursor


def cursor(consumer: str) -> StoredCursor:
    return StoredCursor(consumer, 1, 1, 1)


def test_each_that_is_left_behind_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptCursors()
    kept.keep("a", cursor("p"), 1)
    kept.topic_gone("a")
    # On their way when the topic went: one that is new, and one that was there.
    for consumer in "qp":
        kept.keep("a", cursor(consumer), 2)
        assert (kept.left_behind, kept.count("a")) == (2, 2)
    kept.remove("a", "p")
    assert kept.left_behind == 1
    monkeypatch.setattr(module, "MAX_LEFT_BEHIND", 2)
    kept.keep("b", cursor("p"), 3)
    kept.topic_gone("b")
    assert (kept.left_behind, kept.count("a"), kept.count("b")) == (2, 1, 1)
    # The one whose topic has been gone for longest makes room.
    kept.keep("c", cursor("p"), 3)
    kept.topic_gone("c")
    assert (kept.left_behind, kept.count("a"), kept.count("b"), kept.count("c")) == (2, 0, 1, 1)
    kept.topic_back("b")
    assert (kept.left_behind, kept.count("b")) == (1, 1)


def test_all_topics_are_swept_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEPT_TOPICS", 2)
    kept = KeptCursors()
    for topic in "abcde":
        kept.keep(topic, cursor("p"), 1)
    late = 2 + module.UNUSED_MS
    # Those that were swept before have gone, so that each snapshot goes on behind the ones that stay.
    for topic in "abcde":
        kept.keep(topic, cursor("stays"), late)
    left = []
    for _ in range(4):
        kept.dump(late)
        left.append("".join(topic for topic in "abcde" if kept.count(topic) == 2))
    assert left == ["cde", "e", "", ""]
    # And from the beginning again.
    kept.keep("a", cursor("p"), 1)
    for _ in range(3):
        kept.dump(late)
    assert kept.count("a") == 1
