"""When copies become visible: committed, in order, as safe as the class of their destination asks for."""

from __future__ import annotations

import pytest

from tests.flow.routers.lab import RouterLab, seqs_and_data
from tests.support.appending import append
from topics.log.lifecycle import drop_topic
from topics.storage.journal import SyncTicket


def refuse(ticket: SyncTicket) -> None:
    raise OSError(5, "no")


def test_copies_of_uncommitted_records_are_not_made(lab: RouterLab) -> None:
    lab.put("a", durability="fsync")
    lab.route("r", "a", "b")
    append(lab.engine, "a", b'{"records":[{"data":1}]}', lambda _: None, pytest.fail)
    lab.engine.queue.flush()
    assert lab.data("b") == []
    lab.engine.queue.sync_now()
    assert lab.data("b") == [1]


def test_a_synced_destination_shows_copies_after_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    lab.routers.forward(lambda: False)
    assert lab.topic("b").head == 0
    lab.engine.queue.sync_now()
    assert lab.topic("b").head == 1
    assert lab.engine.counters.fsyncs == syncs + 1


def test_a_reader_of_a_synced_destination_waits_for_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    assert lab.data("b") == [1]
    assert lab.engine.counters.fsyncs == syncs + 1


def test_a_batch_beyond_the_reservation_is_there_for_the_next_reader(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", *range(1000))
    assert len(lab.data("b")) == 1000
    assert lab.topic("b").reserved >= 1000


def test_whoever_is_called_back_by_a_commit_does_not_overtake_it(lab: RouterLab) -> None:
    """A reader woken by a write asks for copies while another write of the same commit is still to come."""
    lab.put("a", cap_records=1)
    lab.route("r", "a", "b")
    lab.write_each("a", 3)
    lab.topic("a").listeners.append(lambda: lab.routers.pull(lab.topic("b")))
    answers: list[int] = []
    for name in ("a", "b"):
        body = b'{"records":[{"data":"together"}]}'
        append(lab.engine, name, body, lambda appended: answers.append(appended.head_seq), pytest.fail)
    lab.engine.queue.flush()
    assert answers == [4, 1]
    assert seqs_and_data(lab, "b") == [(1, "together"), (5, "together")]
    assert lab.topic("b").assigned == 5


def test_a_sync_under_way_is_not_waited_for_twice(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.routers.forward(lambda: False)
    under_way = lab.engine.queue.effects.begin_sync()
    assert lab.data("b") == [1]
    lab.engine.queue.effects.finish_sync(under_way)
    assert lab.topic("b").head == lab.topic("b").assigned == 1
    assert lab.topic("b").pending_sync == 0


def test_a_failed_sync_shows_nothing_and_ends_forwarding(
    lab: RouterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)

    monkeypatch.setattr(SyncTicket, "run", refuse)
    assert lab.data("b") == []
    assert lab.engine.read_only
    assert lab.topic("b").assigned == 0
    assert lab.data("a") == [1]
    assert not lab.routers.forward(lambda: False)
    monkeypatch.undo()
    lab.restart()
    assert lab.data("b") == [1]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_destination_goes_behind_the_copies_that_are_on_their_way_to_it(
    lab: RouterLab, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """And gets none from then on: copies never come to one that has gone."""
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.routers.forward(lambda: False)
    dest, engine = lab.topic("b"), lab.engine
    shown: list[tuple[int, bool]] = []

    def answer(_: object) -> None:
        shown.append((dest.head, dest.dropped))

    drop_topic(engine, "b", False, answer, answer)
    append(engine, "a", b'{"records":[{"data":2}]}', lambda op: None, lambda error: None)
    assert not lab.routers.step(lab.topic("a"))
    assert (lab.topic("a").head, dest.assigned) == (2, 1)
    if is_refused:
        monkeypatch.setattr(SyncTicket, "run", refuse)
    engine.queue.sync_now()
    assert shown == [(0, False) if is_refused else (1, True)]
    assert (dest.pending_count, engine.totals.pending_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("is_mixed", "cap", "are_noted"), [(True, 3, True), (True, 9, False), (False, 3, False)]
)
def test_lines_that_copies_move_are_noted_where_replay_would_not_find_them(
    lab: RouterLab, monkeypatch: pytest.MonkeyPatch, is_mixed: bool, cap: int, are_noted: bool
) -> None:
    """Beside ephemeral records, which are not there when it counts."""
    lab.pulls = False
    if is_mixed:
        lab.put("b", durability="ephemeral")
        lab.write("b", 1, 2)
    lab.put("b", cap_records=cap)
    lab.write("b", 3)
    assert lab.topic("b").mixed is is_mixed
    lab.route("r", "a", "b")
    lab.write("a", 1, 2, 3)
    noted: list[object] = []
    monkeypatch.setattr(lab.engine, "note_lines", noted.append)
    lab.background()
    assert noted == [lab.topic("b")] * are_noted
