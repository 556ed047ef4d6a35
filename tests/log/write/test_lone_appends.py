"""Single records that wait for company: in the log, which asks its caller how writers are answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log.write.append import AppendOp
from topics.log.write.append_request import AppendRequest
from topics.log.write.batch import PlainLine, decode_append, lone_record
from topics.log.write.lone_appends import LoneAppends
from topics.storage.frame import Kind
from topics.values.errors import ApiError


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


def line(value: bytes = b"1") -> PlainLine:
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
