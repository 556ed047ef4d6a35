"""The keys of all topics together: whose are the oldest, and how much is done at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from topics.log.write import all_keys
from topics.log.write.idempotency import keys_kept_ms
from topics.storage.frame import Kind, apart
from topics.storage.journal_reader import read_frame

WINDOW_MS = 1000


def put(lab: Lab, *names: str) -> None:
    for name in names:
        lab.put(name, idempotency_window_ms=WINDOW_MS)


def write(lab: Lab, name: str, *keys: str) -> None:
    for key in keys:
        lab.write(name, 1, key=key)


def test_nothing_is_forgotten_while_there_are_as_many_as_may_be(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_idempotency_keys=200, max_idempotency_keys_per_topic=100)
    put(lab, "t", "u")
    for name in "tu":
        write(lab, name, *map(str, range(100)))
    keys = lab.engine.keys
    assert (keys.count, keys.forgotten) == (200, 0)
    write(lab, "t", "one more")
    assert (keys.count, keys.forgotten) == (199, 2), "and some at once, when there are more"


def test_who_came_later_may_have_the_oldest_key(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_idempotency_keys=3)
    put(lab, "t", "late")
    for number in range(4):
        lab.clock.advance(10)
        write(lab, "t", str(number))
    # Now it is known whose are the oldest: those of t, which is all that had any.
    lab.clock.advance(10)
    write(lab, "late", "first")
    for number in range(3):
        lab.clock.advance(10)
        write(lab, "t", f"more {number}")
    assert keys_kept_ms(lab.topic("late"), lab.engine.now()) < WINDOW_MS
    assert lab.write("t", 1, key="more 0").deduped
    assert not lab.write("late", 1, key="first").deduped


def test_a_turn_of_upkeep_lets_go_of_some(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_keys, "_KEYS_A_SWEEP", 2)
    put(lab, "t", "u", "v")
    for name in "tuv":
        write(lab, name, "a", "b")
    lab.clock.advance(WINDOW_MS + 1)
    left = []
    for _ in range(3):
        lab.engine.keys.sweep(lab.engine.now())
        left.append(lab.engine.keys.count)
    assert left == [4, 2, 0]


def test_a_clock_that_is_set_back_forgets_no_more_than_was(lab: Lab) -> None:
    put(lab, "t")
    write(lab, "t", "a")
    now = lab.engine.now()
    lab.engine.keys.set_back(now, now - 10)
    assert keys_kept_ms(lab.topic("t"), now - 10) == WINDOW_MS
    assert lab.engine.keys.of(lab.topic("t")).oldest_ms == now - 10


def test_a_topic_that_is_gone_takes_its_keys_along(lab: Lab) -> None:
    put(lab, "t")
    write(lab, "t", "a")
    (found,) = (frame for frame in lab.frames() if frame.kind == Kind.KEYED)
    frame, _ = read_frame(memoryview(found.path.read_bytes()), found.offset, 0)
    assert frame is not None
    *_, keyed = apart(frame)
    assert keyed.kind == Kind.KEYED
    lab.drop("t")
    lab.engine.keys.replay(keyed)
    assert lab.engine.keys.count == 0
