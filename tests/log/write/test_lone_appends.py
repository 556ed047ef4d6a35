"""Single records that wait for company: in the log, which asks its caller how writers are answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log.lifecycle import drop_topic
from topics.log.write.append import AppendOp
from topics.log.write.append_form import Lone, decode_append, lone_record
from topics.log.write.append_request import AppendRequest
from topics.log.write.lone_appends import LoneAppends
from topics.storage.frame import Kind
from topics.values.errors import ApiError

pytestmark = pytest.mark.usefixtures("both_ways")


class Answers:
    """Writers are names here."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.groups: list[tuple[list[str], int]] = []
        self.failed: list[tuple[str, str]] = []
        self.alone: list[str] = []

    def answer(self, writers: list[str], op: AppendOp) -> None:
        self.groups.append((writers, op.first_seq))

    def fail(self, writers: list[str], error: ApiError) -> None:
        self.failed += [(writer, error.code) for writer in writers]

    def append_alone(self, writer: str, request: AppendRequest) -> None:
        self.alone.append(writer)
        self._lab.engine.append(
            "t", request, lambda op: self.answer([writer], op), lambda error: self.fail([writer], error)
        )


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "data")
    lab.put("t")
    yield lab
    lab.kill()


@pytest.fixture
def answers(lab: Lab) -> Answers:
    return Answers(lab)


@pytest.fixture
def lone(lab: Lab, answers: Answers) -> LoneAppends[str]:
    return LoneAppends(lab.engine, answers)


def line(value: bytes = b"1") -> Lone:
    found = lone_record(decode_append(b'{"records":[{"data":%b}]}' % value))
    assert found is not None
    return found


def test_nothing_is_written_before_the_queue_is(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    lone.add("a", lab.topic("t"), line())
    assert lab.topic("t").assigned == 0
    assert lab.engine.queue.wants_flush
    lab.engine.queue.flush()
    assert answers.groups == [(["a"], 1)]


def test_writers_of_one_topic_share_a_frame_and_keep_their_order(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    lab.put("u")
    for writer, topic in (("a", "t"), ("b", "u"), ("c", "t")):
        lone.add(writer, lab.topic(topic), line())
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "c"], 1), (["b"], 1)]
    assert [frame.kind for frame in lab.frames()].count(Kind.APPEND) == 2


def test_where_not_all_fit_each_is_asked_alone(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    lab.put("t", cap_records=2, discard="reject")
    for writer in "abc":
        lone.add(writer, lab.topic("t"), line())
    lab.engine.queue.flush()
    assert answers.alone == ["a", "b", "c"]
    assert answers.groups == [(["a"], 1), (["b"], 2)]
    assert answers.failed == [("c", "topic_full")]


def test_a_failed_commit_is_told_to_all(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    for writer in "ab":
        lone.add(writer, lab.topic("t"), line())

    def refuse(*_: object) -> int:
        raise OSError("the disk refuses")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lab.engine.journal.current_file()), "write", refuse)
        lab.engine.queue.flush()
    assert answers.failed == [("a", "internal"), ("b", "internal")]
    assert lab.topic("t").assigned == 0


def test_more_than_a_frame_takes_are_several(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    for number in range(1500):
        lone.add(str(number), lab.topic("t"), line())
    lab.engine.queue.sync_now()
    assert [(len(writers), first) for writers, first in answers.groups] == [(1024, 1), (476, 1025)]


# --- with keys ----------------------------------------------------------------------------------------------


def kinds(lab: Lab) -> list[int]:
    return [frame.kind for frame in lab.frames() if frame.kind in (Kind.APPEND, Kind.KEYED)]


def test_those_with_keys_go_together_too(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    for writer in "abc":
        lone.add_keyed(writer, lab.topic("t"), line(), writer.encode())
    lone.add("d", lab.topic("t"), line())
    lab.engine.queue.flush()
    assert answers.groups == [(["d"], 1), (["a", "b", "c"], 2)]
    assert kinds(lab) == [Kind.APPEND, Kind.KEYED]
    for restart in (lambda: None, lab.restart):
        restart()
        again = [lab.write("t", 0, key=key) for key in "abc"]
        assert [(op.first_seq, op.count, op.head_seq, op.deduped) for op in again] == [
            (2, 1, 2, True),
            (3, 1, 3, True),
            (4, 1, 4, True),
        ]


def test_a_repeat_in_the_same_turn_gets_the_seq_of_the_first(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    for writer, key in (("a", b"k"), ("b", b"l"), ("c", b"k")):
        lone.add_keyed(writer, lab.topic("t"), line(), key)
    lab.engine.queue.flush()
    assert sorted(answers.groups) == [(["a"], 1), (["b"], 2), (["c"], 1)]
    assert lab.topic("t").head == 2


def test_a_repeat_of_one_on_its_way_waits_for_it(lab: Lab, lone: LoneAppends[str], answers: Answers) -> None:
    lab.put("t", durability="fsync")
    lone.add_keyed("a", lab.topic("t"), line(), b"k")
    lab.engine.queue.flush()
    for writer, key in (("b", b"k"), ("c", b"other")):
        lone.add_keyed(writer, lab.topic("t"), line(), key)
    lab.engine.queue.flush()
    assert answers.groups == []
    lab.engine.queue.sync_now()
    assert sorted(answers.groups) == [(["a"], 1), (["b"], 1), (["c"], 2)]


def test_keys_of_a_topic_without_a_window_are_not_kept(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    lab.put("t", idempotency_window_ms=0)
    for writer in "ab":
        lone.add_keyed(writer, lab.topic("t"), line(), b"k")
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "b"], 1)]
    assert kinds(lab) == [Kind.APPEND]


def test_where_not_all_fit_those_refused_keep_their_keys(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    lab.put("t", cap_records=2, discard="reject")
    for writer in "abc":
        lone.add_keyed(writer, lab.topic("t"), line(), writer.encode())
    lab.engine.queue.flush()
    assert answers.failed == [("c", "topic_full")]
    lab.put("t")
    assert [lab.write("t", 0, key=key).deduped for key in "abc"] == [True, True, False]


def test_a_failed_commit_leaves_no_key_of_theirs(
    lab: Lab, lone: LoneAppends[str], answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writer in "ab":
        lone.add_keyed(writer, lab.topic("t"), line(), writer.encode())

    def refuse(*_: object) -> int:
        raise OSError("the disk refuses")

    monkeypatch.setattr(type(lab.engine.journal.current_file()), "write", refuse)
    lab.engine.queue.flush()
    assert answers.failed == [("a", "internal"), ("b", "internal")]
    assert lab.engine.keys.count == 0


def test_a_topic_that_went_meanwhile_is_not_written_to(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    lone.add_keyed("a", lab.topic("t"), line(), b"k")
    drop_topic(lab.engine, "t", False, lambda _: None, lambda _: None)
    lab.engine.queue.sync_now()
    assert answers.groups == [(["a"], 1)]
    assert lab.topic("t").head == 1
    assert lab.write("t", 0, key="k").deduped


def test_more_with_keys_than_a_frame_takes_are_several(
    lab: Lab, lone: LoneAppends[str], answers: Answers
) -> None:
    for number in range(1500):
        lone.add_keyed(str(number), lab.topic("t"), line(), b"%d" % number)
    lab.engine.queue.sync_now()
    assert [(len(writers), first) for writers, first in answers.groups] == [(1024, 1), (476, 1025)]
    for restart in (lambda: None, lab.restart):
        restart()
        assert [lab.write("t", 0, key=key).first_seq for key in ("0", "1023", "1499")] == [1, 1024, 1500]
