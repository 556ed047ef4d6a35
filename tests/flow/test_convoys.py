"""Small writes that travel together; whoever uses them says how writers are let in and answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.log.harness import Lab, records
from topics.flow.convoys import Convoys, Travellers
from topics.log.lifecycle import drop_topic
from topics.log.write.append import AppendOp
from topics.log.write.append_request import parse_append
from topics.log.write.together import TogetherOp
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
        self.counts: list[list[int] | None] = []
        self.kept_out: set[str] = set()
        self.held_s: list[float] = []

    def let_in(self, travellers: Travellers[str], started: float) -> Travellers[str]:
        kept = [index for index, writer in enumerate(travellers.writers) if writer not in self.kept_out]
        return travellers.chosen(kept)

    def answer(self, writers: list[str], counts: list[int] | None, started: float, op: AppendOp) -> None:
        self.groups.append((writers, op.first_seq))
        self.counts.append(counts)

    def answer_together(self, op: TogetherOp[str]) -> None:
        for _, writers, first_seq, *_ in op.shares:
            self.groups.append((writers, first_seq))
            self.counts.append(None)

    def fail(self, writers: list[str], started: float, error: ApiError) -> None:
        self.failed += [(writer, error.code) for writer in writers]

    def note_held(self, held_s: float) -> None:
        self.held_s.append(held_s)

    def append_alone(self, writer: str, body: bytes, key: bytes | None, started: float) -> None:
        self.alone.append(writer)
        try:
            self._lab.engine.append(
                "t",
                parse_append(body, key),
                lambda op: self.answer([writer], None, started, op),
                lambda error: self.fail([writer], started, error),
            )
        except ApiError as error:
            self.fail([writer], started, error)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "data")
    lab.put("t")
    yield lab
    lab.kill()


@pytest.fixture
def answers(lab: Lab) -> Answers:
    return Answers(lab)


class Roads:
    """How the tests join: by the name of a topic."""

    def __init__(self, lab: Lab, answers: Answers) -> None:
        self.doors = SimpleNamespace(stand_open=True, let_pass=lambda name: False)
        self._convoys: Convoys[str] = Convoys(lab.engine, self.doors, answers)  # type: ignore[arg-type]

    def join(self, writer: str, body: bytes | None = None, *, topic: str = "t") -> None:
        self._convoys.join(topic, writer, body or write())

    def join_all(self, topics: str) -> None:
        """One writer to each, all read together, and called like what they write to."""
        self._convoys.join_all([(topic, ([topic], [write()], None)) for topic in topics])

    def join_keyed(self, writer: str, key: bytes, body: bytes | None = None) -> None:
        self._convoys.join_keyed("t", writer, body or write(), key)


@pytest.fixture
def roads(lab: Lab, answers: Answers) -> Roads:
    return Roads(lab, answers)


def write(*values: bytes) -> bytes:
    return b'{"records":[%b]}' % b",".join(b'{"data":%b}' % value for value in values or (b"1",))


def test_nothing_is_written_before_the_queue_is(lab: Lab, roads: Roads, answers: Answers) -> None:
    roads.join("a")
    assert lab.topic("t").assigned == 0
    assert lab.engine.queue.wants_flush
    lab.engine.queue.flush()
    assert answers.groups == [(["a"], 1)]


def test_writers_of_one_topic_share_a_frame_and_keep_their_order(
    lab: Lab, roads: Roads, answers: Answers
) -> None:
    lab.put("u")
    for writer, topic in (("a", "t"), ("b", "u"), ("c", "t")):
        roads.join(writer, topic=topic)
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "c"], 1), (["b"], 1)]
    assert [frame.kind for frame in lab.frames()].count(Kind.APPEND) == 2


def test_how_long_a_departure_held_the_loop_is_noted_once(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.put("u")
    for writer, topic in (("a", "t"), ("b", "u")):
        roads.join(writer, topic=topic)
    lab.engine.queue.flush()
    assert len(answers.held_s) == 1
    assert answers.held_s[0] > 0


def test_where_not_all_fit_each_is_asked_alone(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.put("t", cap_records=2, discard="reject")
    for writer in "abc":
        roads.join(writer)
    lab.engine.queue.flush()
    assert answers.alone == ["a", "b", "c"]
    assert answers.groups == [(["a"], 1), (["b"], 2)]
    assert answers.failed == [("c", "topic_full")]


def test_a_failed_commit_is_told_to_all(lab: Lab, roads: Roads, answers: Answers) -> None:
    for writer in "ab":
        roads.join(writer)

    def refuse(*_: object) -> int:
        raise OSError("the disk refuses")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lab.engine.journal.current_file()), "write", refuse)
        lab.engine.queue.flush()
    assert answers.failed == [("a", "internal"), ("b", "internal")]
    assert lab.topic("t").assigned == 0


def test_more_than_a_frame_takes_are_several(lab: Lab, roads: Roads, answers: Answers) -> None:
    for number in range(1500):
        roads.join(str(number))
    lab.engine.queue.sync_now()
    assert [(len(writers), first) for writers, first in answers.groups] == [(1024, 1), (476, 1025)]


def test_what_is_odd_about_one_is_no_ones_business_but_its_own(
    lab: Lab, roads: Roads, answers: Answers
) -> None:
    bodies = {
        "a": write(),
        "no JSON": b'{"records":[{"data":1',
        "b": b'{ "records": [ {"data": "blanks  inside"} ] }',
        "two writes": write() + b"\n" + write(),
        "half": b'{"records":[{"data":[1,',
        "other half": b"2]}]}",
        "typo": b'{"records":[{"data":1}],"nod":"n"}',
        "c": write(b'"\xc3\xa9"'),
        "no text": write(b'"\xc3"'),
    }
    for writer, body in bodies.items():
        roads.join(writer, body)
    lab.engine.queue.flush()
    bad = ["no JSON", "two writes", "half", "other half", "typo", "no text"]
    assert sorted(answers.failed) == sorted((writer, "invalid_request") for writer in bad)
    assert {record["data"] for record in records(lab.diff("t"))} == {1, "blanks  inside", "é"}
    assert {writer for writers, _ in answers.groups for writer in writers} == {"a", "b", "c"}


def test_writers_of_several_records_hear_of_their_own(lab: Lab, roads: Roads, answers: Answers) -> None:
    roads.join("a", write(b"1"))
    roads.join("b", write(b"2", b"3"))
    roads.join("c", write(b"4"))
    lab.engine.queue.flush()
    first_of = {
        writer: first + sum((counts or [1] * len(writers))[:index])
        for (writers, first), counts in zip(answers.groups, answers.counts, strict=True)
        for index, writer in enumerate(writers)
    }
    data = {record["$seq"]: record["data"] for record in records(lab.diff("t"))}
    assert [data[first_of[writer]] for writer in "abc"] == [1, 2, 4]
    assert data[first_of["b"] + 1] == 3


def test_whatever_their_records_have_they_share_a_frame(lab: Lab, roads: Roads, answers: Answers) -> None:
    bodies = {
        "a": write(),
        "b": b'{"records":[{"data":2,"tag":"x","node":"n"}]}',
        "c": b'{ "records": [ {"data": 3, "meta": {"k": 1}}, {"data": "4 5"} ] }',
        "d": b'{"records":[{"data":6}],"create":false}',
    }
    for writer, body in bodies.items():
        roads.join(writer, body)
    lab.engine.queue.flush()
    assert answers.alone == []
    assert answers.groups == [(["a", "b", "c", "d"], 1)]
    assert answers.counts == [[1, 1, 2, 1]]
    assert kinds(lab) == [Kind.APPEND]
    assert [record["data"] for record in records(lab.diff("t"))] == [1, 2, 3, "4 5", 6]


def test_whoever_is_not_let_in_is_not_written(lab: Lab, roads: Roads, answers: Answers) -> None:
    answers.kept_out = {"b"}
    roads.doors.stand_open = False
    for writer in "abc":
        roads.join(writer)
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "c"], 1)]
    assert lab.topic("t").head == 2


@pytest.mark.parametrize("together", [True, False])
def test_whoever_is_let_pass_need_not_come_to_the_door(
    lab: Lab, roads: Roads, answers: Answers, together: bool
) -> None:
    lab.put("u")
    answers.kept_out = {"t", "u"}
    roads.doors.stand_open, roads.doors.let_pass = False, "u".__eq__
    if together:
        roads.join_all("tu")
    else:
        roads.join("t", topic="t")
        roads.join("u", topic="u")
    lab.engine.queue.flush()
    assert answers.groups == [(["u"], 1)]
    assert lab.topic("t").head == 0


def test_while_others_are_read_whoever_is_let_pass_is_written_as_it_comes(
    lab: Lab, roads: Roads, answers: Answers
) -> None:
    lab.write("t", 0)
    roads.doors.stand_open, roads.doors.let_pass = False, "t".__eq__
    lab.engine.queue.is_free = lambda: True
    lab.engine.queue.hurry = lab.engine.queue.flush
    roads.join_all("t")
    assert answers.groups == [(["t"], 2)]


def test_whoever_has_to_come_to_the_door_comes_at_once(lab: Lab, roads: Roads, answers: Answers) -> None:
    """And not only when the journal is about to be written: then it would be too late for that."""
    asked: list[str] = []
    roads.doors.stand_open, roads.doors.let_pass = False, lambda name: bool(asked.append(name))
    answers.kept_out = {"t"}
    roads.join_all("t")
    assert asked == ["t", "t"]
    assert not lab.engine.queue.wants_flush


def test_a_topic_that_is_not_there_is_the_business_of_each(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.drop("t")
    for writer in "ab":
        roads.join(writer)
    lab.engine.queue.sync_now()
    assert answers.alone == ["a", "b"]
    assert lab.topic("t").head == 2


# --- with keys ----------------------------------------------------------------------------------------------


def kinds(lab: Lab) -> list[int]:
    return [frame.kind for frame in lab.frames() if frame.kind in (Kind.APPEND, Kind.KEYED)]


def test_those_with_keys_go_together_too(lab: Lab, roads: Roads, answers: Answers) -> None:
    for writer in "abc":
        roads.join_keyed(writer, writer.encode())
    roads.join("d")
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "b", "c"], 1), (["d"], 4)]
    assert kinds(lab) == [Kind.KEYED, Kind.APPEND]
    for restart in (lambda: None, lab.restart):
        restart()
        again = [lab.write("t", 0, key=key) for key in "abc"]
        assert [(op.first_seq, op.count, op.head_seq, op.deduped) for op in again] == [
            (1, 1, 1, True),
            (2, 1, 2, True),
            (3, 1, 3, True),
        ]


def test_a_repeat_in_the_same_turn_gets_the_seq_of_the_first(
    lab: Lab, roads: Roads, answers: Answers
) -> None:
    for writer, key in (("a", b"k"), ("b", b"l"), ("c", b"k")):
        roads.join_keyed(writer, key)
    lab.engine.queue.flush()
    assert sorted(answers.groups) == [(["a"], 1), (["b"], 2), (["c"], 1)]
    assert lab.topic("t").head == 2


def test_a_repeat_of_one_on_its_way_waits_for_it(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.put("t", durability="fsync")
    roads.join_keyed("a", b"k")
    lab.engine.queue.flush()
    for writer, key in (("b", b"k"), ("c", b"other")):
        roads.join_keyed(writer, key)
    lab.engine.queue.flush()
    assert answers.groups == []
    lab.engine.queue.sync_now()
    assert sorted(answers.groups) == [(["a"], 1), (["b"], 1), (["c"], 2)]


def test_keys_of_a_topic_without_a_window_are_not_kept(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.put("t", idempotency_window_ms=0)
    for writer in "ab":
        roads.join_keyed(writer, b"k")
    lab.engine.queue.flush()
    assert answers.groups == [(["a", "b"], 1)]
    assert kinds(lab) == [Kind.APPEND]


def test_where_not_all_fit_those_refused_keep_their_keys(lab: Lab, roads: Roads, answers: Answers) -> None:
    lab.put("t", cap_records=2, discard="reject")
    for writer in "abc":
        roads.join_keyed(writer, writer.encode())
    lab.engine.queue.flush()
    assert answers.failed == [("c", "topic_full")]
    lab.put("t")
    assert [lab.write("t", 0, key=key).deduped for key in "abc"] == [True, True, False]


def test_a_failed_commit_leaves_no_key_of_theirs(
    lab: Lab, roads: Roads, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writer in "ab":
        roads.join_keyed(writer, writer.encode())

    def refuse(*_: object) -> int:
        raise OSError("the disk refuses")

    monkeypatch.setattr(type(lab.engine.journal.current_file()), "write", refuse)
    lab.engine.queue.flush()
    assert answers.failed == [("a", "internal"), ("b", "internal")]
    assert lab.engine.keys.count == 0


def test_a_topic_that_went_meanwhile_is_not_written_to(lab: Lab, roads: Roads, answers: Answers) -> None:
    roads.join_keyed("a", b"k")
    drop_topic(lab.engine, "t", False, lambda _: None, lambda _: None)
    lab.engine.queue.sync_now()
    assert answers.groups == [(["a"], 1)]
    assert lab.topic("t").head == 1
    assert lab.write("t", 0, key="k").deduped


def test_more_with_keys_than_a_frame_takes_are_several(lab: Lab, roads: Roads, answers: Answers) -> None:
    for number in range(1500):
        roads.join_keyed(str(number), b"%d" % number)
    lab.engine.queue.sync_now()
    assert [(len(writers), first) for writers, first in answers.groups] == [(1024, 1), (476, 1025)]
    for restart in (lambda: None, lab.restart):
        restart()
        assert [lab.write("t", 0, key=key).first_seq for key in ("0", "1023", "1499")] == [1, 1024, 1500]
