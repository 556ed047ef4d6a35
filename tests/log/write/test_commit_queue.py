"""The queue itself: one write for all, effects in order, syncs counted, and failures that are final."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.log.harness import Lab
from topics.core.errors import ApiError, OutcomeUnknown, WritesOff
from topics.log.write import commit_queue
from topics.log.write.append import Append
from topics.log.write.commit_queue import CommitQueue, Counters
from topics.log.write.operation import CallbackOp, Creation, Op
from topics.storage.frame import FrameDraft, Kind


class Gathered(Append):
    """An append request that is never decoded."""

    def __init__(self, body: bytes, fail: Callable[[ApiError], None]) -> None:
        super().__init__("t", body)
        self._fail = fail

    def fail(self, error: ApiError) -> None:
        self._fail(error)


class Desk:
    """A queue on a journal of its own, and operations that note when they take effect."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.journal = lab.engine.journal
        self.queue = CommitQueue(
            self.journal, lab.engine.witness, Counters(), lab.engine.reserve, self._assign
        )
        self.wakes = 0
        self.done: list[str] = []
        self.failed: list[str] = []
        self.queue.wake_with(self._woken)

    def _woken(self) -> None:
        self.wakes += 1

    def op(self, name: str, *, sync: bool = False, topic: str | None = None) -> Op:
        frame = FrameDraft(Kind.CLOCK, b"", ts=1)
        of = None if topic is None else self.lab.topic(topic)
        return CallbackOp(
            [frame], of, lambda _: self.done.append(name), lambda _: self.failed.append(name), sync=sync
        )

    def _assign(self, requests: list[Append]) -> None:
        for request in requests:
            self.submit(request.body.decode())

    def enqueue(self, name: str) -> None:
        self.queue.enqueue(Gathered(name.encode(), lambda _: self.failed.append(name)))

    def submit(self, name: str, *, sync: bool = False, topic: str | None = None) -> None:
        self.queue.submit(self.op(name, sync=sync, topic=topic))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    lab = Lab(tmp_path / "data")
    lab.put("t")
    yield Desk(lab)
    lab.kill()


def test_all_that_waits_is_written_at_once_and_takes_effect_in_order(desk: Desk) -> None:
    before = desk.journal.position
    for name in "abc":
        desk.submit(name)
    assert (desk.done, desk.wakes, desk.queue.depth) == ([], 1, 3)
    desk.queue.flush()
    assert desk.done == ["a", "b", "c"]
    assert desk.queue.counters.batches == 1
    assert desk.queue.counters.bytes_written == desk.journal.position - before
    assert desk.journal.position - before == 3 * desk.op("as long").frames[0].size > 0
    assert desk.queue.counters.queue_depth_peak == 3
    desk.queue.flush()
    assert desk.queue.counters.batches == 1


@pytest.mark.parametrize("is_aside", [False, True])
def test_each_operation_knows_where_its_frames_are(desk: Desk, is_aside: bool) -> None:
    begin = desk.journal.position
    ops = [desk.op(name) for name in "abc"]
    ops[1].frames.append(FrameDraft(Kind.CLOCK, b"another", ts=1))
    for op in ops:
        desk.queue.submit(op)
    if is_aside:
        write = desk.queue.begin_write()
        assert write is not None
        write.run()
        desk.queue.finish_write(write)
    else:
        desk.queue.flush()
    first, second = (sum(frame.size for frame in op.frames) for op in ops[:2])
    edges = [begin, begin + first, begin + first + second, desk.journal.position]
    assert [op.span for op in ops] == [*pairwise(edges)]


def test_an_operation_that_is_written_again_knows_its_new_place(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.lab.engine.reserve.make(16 * 4096)
    begin = desk.journal.position
    grows = Creation(
        [FrameDraft(Kind.CLOCK, b"refused", ts=1)], None, lambda _: None, lambda _: None, sync=False
    )
    stays = desk.op("a")
    write = desk.journal.write
    refused: list[int] = []

    def refuse_growth(frames: list[FrameDraft]) -> None:
        if len(frames) > 1:
            refused.append(len(frames))
            raise OSError(errno.ENOSPC, "no space left on device")
        write(frames)

    monkeypatch.setattr(desk.journal, "write", refuse_growth)
    monkeypatch.setattr(desk.lab.engine.reserve, "give", lambda size, *, keep=0: not keep)
    for op in (grows, stays):
        desk.queue.submit(op)
    desk.queue.flush()
    assert desk.done == ["a"]
    assert refused == [2]
    assert stays.span == (begin, desk.journal.position)


@pytest.mark.parametrize("is_under_way", [False, True])
def test_nothing_overtakes_an_earlier_one_of_its_topic_that_waits_for_a_sync(
    desk: Desk, is_under_way: bool
) -> None:
    desk.submit("first", sync=True, topic="t")
    desk.queue.flush()
    ticket = desk.queue.effects.begin_sync() if is_under_way else None
    desk.submit("second", topic="t")
    desk.queue.flush()
    assert desk.done == []
    if ticket is not None:
        ticket.run()
        desk.queue.effects.finish_sync(ticket)
        assert desk.done == ["first"]
    last = desk.queue.effects.begin_sync()
    last.run()
    desk.queue.effects.finish_sync(last)
    assert desk.done == ["first", "second"]


def test_no_operation_of_a_topic_overtakes_an_earlier_one(desk: Desk) -> None:
    desk.submit("synced", sync=True, topic="t")
    desk.submit("not synced", topic="t")
    desk.submit("of no topic")
    desk.queue.flush()
    assert desk.done == ["of no topic"]
    desk.queue.sync_now()
    assert desk.done == ["of no topic", "synced", "not synced"]


def test_gathered_requests_come_before_operations_that_are_submitted_later(desk: Desk) -> None:
    desk.enqueue("gathered")
    assert (desk.wakes, desk.queue.depth, desk.queue.wants_flush) == (1, 1, True)
    desk.submit("direct")
    desk.enqueue("later")
    desk.queue.flush()
    assert (desk.done, desk.wakes) == (["gathered", "direct", "later"], 1)
    assert not desk.queue.wants_flush


def test_requests_that_exceed_the_limit_of_a_flush_join_the_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_queue, "FLUSH_BYTES", 5)
    for name in ("three", "x", "next", "and larger than the limit", "last"):
        desk.enqueue(name)
    flushes = [["three", "x"], ["next", "and larger than the limit"], ["last"]]
    for number, expected in enumerate(flushes, 1):
        assert desk.wakes == number
        desk.queue.flush()
        assert desk.done == expected
        desk.done.clear()
    assert not desk.queue.wants_flush


def test_an_operation_does_not_overtake_requests_that_exceed_the_limit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_queue, "FLUSH_BYTES", 1)
    for name in ("one", "two"):
        desk.enqueue(name)
    desk.submit("after them")
    desk.queue.flush()
    assert desk.done == ["one", "two", "after them"]


def test_a_defect_while_seqs_are_assigned_ends_writing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(desk.queue, "_assign", defect)
    desk.submit("before")
    desk.enqueue("request")
    desk.queue.flush()
    assert (desk.done, desk.failed) == ([], ["before", "request"])
    assert desk.queue.refusals.off is WritesOff.STORAGE_FAILED


def test_a_group_may_be_written_elsewhere_and_is_waited_for(desk: Desk) -> None:
    desk.submit("a")
    write = desk.queue.begin_write()
    assert write is not None
    assert (desk.queue.is_writing, desk.queue.depth) == (True, 1)
    write.run()
    desk.submit("b")
    # A flush cannot go before the group that is under way.
    desk.queue.flush()
    assert desk.done == ["a", "b"]
    desk.queue.finish_write(write)
    assert desk.done == ["a", "b"]
    assert not desk.queue.is_writing
    assert desk.queue.begin_write() is None


def test_a_group_without_memory_for_its_headers_fails(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise MemoryError

    desk.submit("a")
    monkeypatch.setattr(desk.journal, "begin_write", refuse)
    assert desk.queue.begin_write() is None
    assert (desk.done, desk.failed) == ([], ["a"])
    assert not desk.queue.is_writing
    assert desk.queue.refusals.failure is not None


def test_a_note_goes_behind_the_group_that_is_under_way(desk: Desk) -> None:
    desk.submit("a")
    write = desk.queue.begin_write()
    assert write is not None
    before = desk.journal.position
    write.run()
    desk.queue.note([FrameDraft(Kind.CLOCK, b"", ts=2)])
    assert desk.journal.position == before + 2 * write.written
    # In the journal; it takes effect when its turn comes.
    assert desk.done == []
    desk.queue.settle()
    assert desk.done == ["a"]


def test_a_failure_is_final(desk: Desk) -> None:
    desk.submit("written", sync=True)
    desk.queue.flush()
    desk.submit("waiting")
    desk.queue.give_up(OSError("the disk refuses"))
    assert desk.failed == ["written", "waiting"]
    assert desk.done == []
    with pytest.raises(ApiError, match="until restart"):
        desk.submit("late")


def test_what_could_not_take_effect_and_all_behind_it_is_not_answered_for(desk: Desk) -> None:
    def broken(_: Op) -> None:
        raise OSError("a file that had to be read")

    failures: list[ApiError] = []
    desk.submit("before")
    desk.queue.submit(CallbackOp(desk.op("x").frames, None, broken, failures.append, sync=False))
    desk.submit("behind")
    desk.queue.flush()
    assert (desk.done, desk.failed) == (["before"], ["behind"])
    assert [type(failure) for failure in failures] == [OutcomeUnknown]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_note_that_cannot_be_written_is_not_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_: object) -> None:
        raise OSError(number, "the disk refuses")

    position = desk.journal.position
    monkeypatch.setattr(desk.journal, "write", refuse)
    for note in (desk.queue.note, desk.queue.note_synced):
        assert not note([FrameDraft(Kind.CLOCK, b"", ts=2)])
    assert desk.journal.position == position


def test_a_journal_without_room_for_another_file_goes_on_in_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as full:
        full.setattr(desk.journal, "rotate", refuse)
        assert not desk.queue.rotate()
    assert desk.queue.refusals.failure is None
    assert desk.queue.rotate()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_group_that_was_refused_elsewhere_has_failed_or_finds_room(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse() -> int:
        raise OSError(number, "the disk refuses")

    desk.lab.engine.reserve.make(16 * 4096)
    desk.submit("a")
    write = desk.queue.begin_write()
    assert write is not None
    monkeypatch.setattr(write, "_write", SimpleNamespace(run=refuse))
    write.run()
    has_room = number == errno.ENOSPC
    assert desk.queue.note([FrameDraft(Kind.CLOCK, b"", ts=2)]) == has_room
    desk.queue.settle()
    assert (desk.done, desk.failed) == ((["a"], []) if has_room else ([], ["a"]))
