"""The engine as others see it: names, time, rotation, and how it ends."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from tests.support.damage import cut, flip
from topics.core.errors import ApiError
from topics.storage.frame import Kind


def test_a_closed_journal_file_ends_with_the_heads_of_what_was_written_in_it(lab: Lab) -> None:
    lab.write("a", 1, 2)
    lab.write("b", 1)
    lab.engine.rotate()
    assert [frame.kind for frame in lab.frames()].count(Kind.HEADS) == 1
    assert len(lab.journal_files()) == 2
    # The record of `b` is damaged, and whose it was: what closes the file says which seqs there were.
    lab.kill()
    victim = [frame for frame in lab.frames() if frame.kind == Kind.APPEND][-1]
    flip(victim.path, victim.offset + 20)
    lab.open()
    assert (lab.seqs("a"), lab.gaps("a")) == ([1, 2], [])
    assert lab.gaps("b") == [(1, 1, "cap")]


@pytest.mark.parametrize(
    ("moved", "is_mixed", "are_noted"),
    [
        ({}, True, False),
        ({"ttl_hi": 1}, False, True),
        ({"cap_hi": 1}, True, True),
        ({"cap_hi": 1}, False, False),
    ],
)
def test_lines_that_replay_would_not_find_again_are_noted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, moved: dict[str, int], is_mixed: bool, are_noted: bool
) -> None:
    lab.put("t")
    topic, noted = lab.topic("t"), list[object]()
    monkeypatch.setattr(lab.engine, "note_lines", noted.append)
    topic.mixed = is_mixed
    for line, seq in moved.items():
        setattr(topic, line, seq)
    lab.engine.note_moved_lines(topic, 0, 0)
    assert noted == [topic] * are_noted


def test_a_start_that_cannot_be_finished_yet_takes_no_writes(lab: Lab) -> None:
    """There is room again, and then there is none for what has to be written first."""
    may_finish = iter((False, True))
    lab.engine.hold_until(lambda: next(may_finish))
    lab.engine.resume_writes()
    with pytest.raises(ApiError, match="full"):
        lab.write("t", 1)
    lab.engine.resume_writes()
    lab.write("t", 1)
    # It is finished once.
    lab.engine.queue.refusals.note_full()
    lab.engine.resume_writes()
    assert lab.engine.writes_off is None


def test_a_clean_end_survives_a_power_loss_and_another_does_not(lab: Lab) -> None:
    lab.write("t", 1)
    assert not lab.engine.read_only
    lab.stop()
    lab.disk.boot = b"boot-2"
    lab.open()
    assert lab.gaps("t") == []
    synced = lab.engine.journal.synced
    lab.write("t", 2)
    lab.kill()
    newest = lab.journal_files()[-1]
    cut(newest, newest.stat().st_size - (lab.engine.journal.position - synced))
    lab.disk.boot = b"boot-3"
    lab.open()
    assert lab.gaps("t")[0][0] == 2
