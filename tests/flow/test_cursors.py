"""Named cursors survive restarts, outlive their topic, and never hold anything back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.log.harness import Lab
from topics.core.errors import ApiError, WritesOff
from topics.flow import cursors as cursors_module
from topics.flow.cursors import UNUSED_MS, Cursors, StoredCursor


class CursorLab(Lab):
    cursors: Cursors

    def layer(self) -> None:
        self.cursors = Cursors(self.engine)
        self.engine.register(self.cursors)

    def set(
        self, consumer: str, seq: int, epoch: int | None = None, name: str = "a"
    ) -> tuple[StoredCursor, bool]:
        topic = self.topic(name)
        found: tuple[StoredCursor, bool] = self.commit(
            lambda done, fail: self.cursors.put(
                topic, consumer, seq, epoch, lambda cursor, created: done((cursor, created)), fail
            )
        )
        return found

    def unset(self, consumer: str, name: str = "a") -> bool:
        deleted: bool = self.commit(lambda done, fail: self.cursors.drop(name, consumer, done, fail))
        return deleted

    def seqs_of(self, name: str = "a") -> dict[str, int]:
        return {cursor.consumer: cursor.seq for cursor in self.cursors.of(name)}


@pytest.fixture
def lab(tmp_path: Path) -> CursorLab:
    lab = CursorLab(tmp_path)
    lab.write_each("a", 10)
    return lab


def test_lag_is_what_a_read_has_before_it(lab: CursorLab) -> None:
    topic = lab.topic("a")
    assert lab.cursors.lag(topic, lab.set("c", 4)[0]) == 6
    assert lab.cursors.lag(topic, lab.set("c", 10)[0]) == 0
    assert lab.cursors.lag(topic, lab.set("c", 99)[0]) == 10
    assert lab.cursors.lag(topic, lab.set("c", 4, epoch=topic.id + 1)[0]) == 10
    lab.delete("a", before=9)
    assert lab.cursors.lag(topic, lab.set("c", 4, epoch=topic.id + 1)[0]) == 2


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_cursors_survive_a_restart(lab: CursorLab, checkpoints: int, clean: bool) -> None:
    lab.set("c", 4)
    lab.set("gone", 1)
    for _ in range(checkpoints):
        lab.checkpoint()
    lab.set("d", 5)
    lab.unset("gone")
    lab.restart(clean=clean)
    assert lab.seqs_of() == {"c": 4, "d": 5}
    lab.restart()
    assert lab.seqs_of() == {"c": 4, "d": 5}


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_cursors_outlive_their_topic(lab: CursorLab, checkpoints: int, clean: bool) -> None:
    """And still say for which life they were set."""
    epoch = lab.topic("a").id
    lab.set("c", 4)
    lab.set("gone", 4)
    lab.drop("a")
    assert lab.unset("gone")
    for _ in range(checkpoints):
        lab.checkpoint()
    for _ in range(2):
        assert lab.seqs_of() == {"c": 4}
        lab.restart(clean=clean)
    lab.write_each("a", 6)
    for _ in range(2):
        (cursor,) = lab.cursors.of("a")
        assert (cursor.seq, cursor.epoch) == (4, epoch)
        assert lab.cursors.lag(lab.topic("a"), cursor) == 6
        lab.restart(clean=clean)
    assert not lab.set("c", 1)[1]
    assert lab.cursors.of("a")[0].epoch == lab.topic("a").id


def test_their_number_is_limited_but_moving_one_is_not(
    lab: CursorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors_module, "MAX_CURSORS", 2)
    lab.set("c", 1)
    lab.set("d", 1)
    lab.set("d", 2)
    with pytest.raises(ApiError) as refusal:
        lab.set("e", 1)
    assert refusal.value.detail == {"limit": "max_cursors", "max": 2}


def test_those_that_are_on_their_way_count(lab: CursorLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors_module, "MAX_CURSORS", 2)
    answers: list[Any] = []

    def put(consumer: str, name: str = "a") -> None:
        put_cursor = lab.cursors.put
        put_cursor(lab.topic(name), consumer, 1, None, lambda *told: answers.append(told), answers.append)

    lab.put("b")
    put("c")
    put("d")
    put("c", "b")
    with pytest.raises(ApiError):
        put("e")
    lab.engine.queue.sync_now()
    assert [cursor.consumer for cursor, _ in answers] == ["c", "d", "c"]
    assert not lab.cursors._coming
    put("d", "b")
    lab.engine.queue.refusals.end(WritesOff.STORAGE_FAILED, "the disk refuses")
    assert isinstance(answers[-1], ApiError)
    assert not lab.cursors._coming


# Unused ones

DAY_MS = 24 * 60 * 60 * 1000


def test_a_cursor_goes_when_it_was_not_used_for_thirty_days(lab: CursorLab) -> None:
    lab.set("idle", 1)
    lab.set("looked-at", 1)
    lab.set("moved", 1)
    lab.clock.advance(20 * DAY_MS)
    assert lab.cursors.use("a", "looked-at") is not None
    lab.set("moved", 2)
    lab.clock.advance(10 * DAY_MS)
    assert lab.seqs_of() == {"idle": 1, "looked-at": 1, "moved": 2}
    lab.clock.advance(1)
    # Whoever lists them does not use them.
    assert lab.seqs_of() == {"looked-at": 1, "moved": 2}
    assert lab.cursors.find("a", "idle") is None
    assert lab.cursors.use("a", "idle") is None
    assert not lab.unset("idle")
    lab.checkpoint()
    assert {one[0][0] for one in msgspec.msgpack.decode(lab.cursors.dump()["a"])} == {"looked-at", "moved"}
    lab.restart()
    assert lab.seqs_of() == {"looked-at": 1, "moved": 2}
    lab.clock.advance(20 * DAY_MS)
    assert lab.seqs_of() == {}
    assert lab.set("idle", 7)[1], "one that is forgotten is new when it comes again"
    assert lab.seqs_of() == {"idle": 7}


def test_forgotten_ones_make_room_and_are_swept_in_turns(
    lab: CursorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors_module, "MAX_CURSORS", 2)
    monkeypatch.setattr(cursors_module, "SWEPT_TOPICS", 2)
    for name in ("a", "b", "c", "d", "e"):
        lab.write(name, 1)
        lab.set("c", 1, name=name)
        lab.set("d", 1, name=name)
    lab.clock.advance(UNUSED_MS)
    assert lab.cursors.use("e", "d") is not None
    lab.clock.advance(1)
    swept = []
    for _ in range(3):
        state = lab.cursors.dump()
        swept.append("".join(sorted(state)))
    assert swept == ["cde", "cde", "e"]
    assert lab.cursors.dump() == {"e": state["e"]}
    lab.set("e", 1)
    lab.set("f", 1)
    assert lab.seqs_of() == {"e": 1, "f": 1}
    lab.drop("b")
    lab.checkpoint()
    lab.restart()
    assert lab.seqs_of("e") == {"d": 1}


# Of topics that are gone


def test_those_left_behind_are_bounded(lab: CursorLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors_module, "MAX_LEFT_BEHIND", 4)
    for name in ("b", "c", "d"):
        lab.write(name, 1)
        for consumer in ("x", "y"):
            lab.set(consumer, 1, name=name)
    lab.set("stays", 1)

    def left() -> list[str]:
        return [name for name in ("b", "c", "d") if lab.cursors.of(name)]

    lab.drop("c")
    lab.drop("b")
    assert left() == ["b", "c", "d"]
    lab.drop("d")
    assert left() == ["b", "d"], "the one that was gone for longest"
    lab.checkpoint()
    lab.restart()
    assert left() == ["b", "d"]
    # Back again, it does not count any more; one that is removed does not either.
    lab.write("b", 1)
    lab.unset("x", name="d")
    lab.write("e", 1)
    for consumer in ("x", "y", "z"):
        lab.set(consumer, 1, name="e")
    lab.drop("e")
    assert left() == ["b", "d"]
    lab.drop("b")
    assert left() == ["b"]
    assert lab.seqs_of("e") == {}, "both that went before it had to go"
    assert lab.seqs_of() == {"stays": 1}


def test_all_of_them_in_the_order_of_their_names(lab: CursorLab) -> None:
    for name in ("b", "a.1", "a.2"):
        lab.write(name, 1)
    for name, consumer in (("b", "x"), ("a", "y"), ("a", "x"), ("a.2", "x"), ("a.1", "z")):
        lab.set(consumer, 1, name=name)
    lab.drop("a.1")

    def listed(topic: str = "", consumer: str = "", **more: str) -> list[tuple[str, str]]:
        found = lab.cursors.walk(topic, consumer, **more)
        return [(name, one.consumer) for name, one in found if one is not None]

    everything = [("a", "x"), ("a", "y"), ("a.1", "z"), ("a.2", "x"), ("b", "x")]
    assert listed() == everything
    for index, place in enumerate(everything):
        assert listed(*place) == everything[index + 1 :]
    assert listed(prefix="a.") == [("a.1", "z"), ("a.2", "x")]
    assert listed("a.1", "z", prefix="a.") == [("a.2", "x")]
    assert listed("a", "x", prefix="a.") == [("a.1", "z"), ("a.2", "x")]
    assert listed("b", "x", prefix="a.") == []
    assert listed(only="x") == [("a", "x"), ("a.2", "x"), ("b", "x")]
    assert listed("a", "x", only="x") == [("a.2", "x"), ("b", "x")]
    lab.unset("x", name="b")
    lab.unset("z", name="a.1")
    assert listed() == [("a", "x"), ("a", "y"), ("a.2", "x")]
