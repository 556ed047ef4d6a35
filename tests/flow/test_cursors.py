"""Named cursors survive restarts, go with their topic, and never hold anything back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.flow import cursors as cursors_module
from topics.flow.cursors import Cursor, Cursors
from topics.log.lifecycle import drop_topic
from topics.values.errors import ApiError


class CursorLab(Lab):
    cursors: Cursors

    def layer(self) -> None:
        self.cursors = Cursors(self.engine)
        self.engine.register(self.cursors)

    def set(self, consumer: str, seq: int, epoch: int | None = None, name: str = "a") -> tuple[Cursor, bool]:
        topic = self.topic(name)
        found: tuple[Cursor, bool] = self.commit(
            lambda done, fail: self.cursors.put(
                topic, consumer, seq, epoch, lambda cursor, created: done((cursor, created)), fail
            )
        )
        return found

    def unset(self, consumer: str, name: str = "a") -> bool:
        deleted: bool = self.commit(
            lambda done, fail: self.cursors.drop(self.topic(name), consumer, done, fail)
        )
        return deleted

    def seqs_of(self, name: str = "a") -> dict[str, int]:
        return {cursor.consumer: cursor.seq for cursor in self.cursors.all(self.topic(name))}


@pytest.fixture
def lab(tmp_path: Path) -> CursorLab:
    lab = CursorLab(tmp_path)
    lab.write_each("a", 10)
    return lab


def test_a_cursor_is_created_then_moved(lab: CursorLab) -> None:
    cursor, created = lab.set("spark", 4)
    assert created
    assert (cursor.seq, cursor.epoch, cursor.updated_ts) == (4, lab.topic("a").id, lab.clock.now_ms())
    lab.clock.advance(5)
    cursor, created = lab.set("spark", 2)
    assert not created
    assert (cursor.seq, cursor.updated_ts) == (2, lab.clock.now_ms())
    assert lab.seqs_of() == {"spark": 2}


def test_lag_is_what_a_read_has_before_it(lab: CursorLab) -> None:
    topic = lab.topic("a")
    assert lab.cursors.lag(topic, lab.set("c", 4)[0]) == 6
    assert lab.cursors.lag(topic, lab.set("c", 10)[0]) == 0
    assert lab.cursors.lag(topic, lab.set("c", 99)[0]) == 10
    assert lab.cursors.lag(topic, lab.set("c", 4, epoch=topic.id + 1)[0]) == 10
    lab.delete("a", before=9)
    assert lab.cursors.lag(topic, lab.set("c", 4, epoch=topic.id + 1)[0]) == 2


def test_deleting_tells_whether_there_was_one(lab: CursorLab) -> None:
    lab.set("c", 4)
    assert lab.unset("c")
    assert not lab.unset("c")
    assert lab.seqs_of() == {}


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


def test_cursors_go_with_their_topic(lab: CursorLab) -> None:
    lab.set("c", 4)
    lab.drop("a")
    lab.write("a", 1)
    assert lab.seqs_of() == {}
    lab.restart()
    assert lab.seqs_of() == {}


def test_a_cursor_on_its_way_when_the_topic_goes_leaves_nothing_behind(lab: CursorLab) -> None:
    topic = lab.topic("a")
    drop_topic(lab.engine, "a", False, lambda deleted: None, lambda error: None)
    lab.cursors.put(topic, "c", 1, None, lambda cursor, created: None, lambda error: None)
    lab.engine.queue.sync_now()
    assert lab.cursors.dump() == {}


def test_a_cursor_holds_nothing_back(lab: CursorLab) -> None:
    lab.set("c", 1)
    lab.put("a", cap_records=2)
    assert lab.seqs("a") == [9, 10]
    assert lab.seqs_of() == {"c": 1}


def test_names_follow_the_rule_for_topics(lab: CursorLab) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.set("no spaces", 1)
    assert refusal.value.code == "invalid_request"


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
