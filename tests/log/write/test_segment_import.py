"""Imports of segments: how many records share a run, how many bytes a file, and what damage leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from tests.support.appending import append, body_of, write_of
from tests.support.damage import flip
from topics import codec
from topics.codec import Write
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.core.settings import MAX_SEQ
from topics.log.lifecycle import put_topic
from topics.log.topic import Topic
from topics.log.write import segment_import
from topics.log.write.group import Amount
from topics.log.write.segment_import import ImportFiles, begin_import, finish_import
from topics.storage.frame import FrameDraft, Kind

Piece = tuple[Topic, Write]


def pieces(lab: Lab, *counts: int) -> list[Piece]:
    """Writes with these numbers of records."""
    return [(lab.topic("t"), write_of(body_of(*[7] * count))) for count in counts]


class Import:
    """One import, step by step."""

    def __init__(self, lab: Lab, given: list[Piece]) -> None:
        self.lab, self.results = lab, list[ApiError | None]()
        amount = Amount.of(lab.topic("t"), [write for _, write in given])
        self.operation = begin_import(
            lab.engine, [amount], lab.engine.now(), lambda: self.results.append(None), self.results.append
        )
        self.files = ImportFiles(lab.engine, self.operation)
        self.left = iter(given)

    def write(self, *, is_last: bool) -> None:
        self.files.write(self.lab.engine.take_segment_number(), is_last=is_last)

    def finish(self) -> list[tuple[int, int]]:
        """First seq and number of records of each run."""
        engine = self.lab.engine
        assert not self.files.fill(self.left)
        self.write(is_last=True)
        assert engine.rotate_to_import()
        finish_import(engine, self.operation, lambda: FrameDraft(Kind.CLOCK, ts=engine.now()))
        engine.queue.sync_now()
        assert self.results == [None]
        return [(run.base, run.count) for run in self.operation.parts[0].runs]


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", durability="fsync")
    return lab


def test_a_run_has_as_many_records_as_others_have(lab: Lab) -> None:
    assert Import(lab, pieces(lab, 2, 2, 1)).finish() == [(1, 4), (5, 1)]
    for _ in range(2):
        assert lab.seqs("t") == [1, 2, 3, 4, 5]
        lab.restart()


@pytest.mark.parametrize(("more", "runs"), [(0, [(1, 2), (3, 2)]), (1, [(1, 4)])])
def test_a_run_has_as_many_bytes_as_others_have(lab: Lab, more: int, runs: list[tuple[int, int]]) -> None:
    given = pieces(lab, 2, 2)
    lab.engine.store.unsealed.max_events = 100
    text = codec.encode([given[0][1]], 1, lab.engine.now()).text
    lab.engine.store.unsealed.max_bytes = len(text) + more
    assert Import(lab, given).finish() == runs


def test_a_file_is_written_when_there_is_enough_for_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are not full are written if they are half of a file, or if nothing more comes."""
    job = Import(lab, pieces(lab, 1, 1))
    monkeypatch.setattr(segment_import, "FILE_BYTES", 1)
    assert job.files.fill(job.left)
    one = job.files._open_bytes
    assert one > 1
    monkeypatch.setattr(segment_import, "FILE_BYTES", 2 * one + 2)
    job.write(is_last=False)
    assert not job.files.numbers, "too little"
    monkeypatch.setattr(segment_import, "FILE_BYTES", 2 * one)
    job.write(is_last=False)
    assert len(job.files.numbers) == len(lab.segment_files()) == 1
    monkeypatch.setattr(segment_import, "FILE_BYTES", one)
    assert job.files.fill(job.left), "exactly enough"
    assert job.finish() == [(1, 1), (2, 1)]
    assert lab.seqs("t") == [1, 2]


def test_an_import_may_use_the_last_seq_and_none_after_it(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(seq_base=MAX_SEQ - 1)
    lab.put("t", durability="fsync")
    with pytest.raises(ApiError, match="used up its seqs"):
        Import(lab, pieces(lab, 3))
    assert Import(lab, pieces(lab, 2)).finish() == [(MAX_SEQ - 1, 2)]


def test_a_damaged_frame_still_has_the_seqs_that_are_lost(lab: Lab) -> None:
    lab.write("t", 1)
    Import(lab, pieces(lab, 3)).finish()
    lab.write("t", 5)
    lab.kill()
    (victim,) = (frame for frame in lab.frames() if frame.kind == Kind.GROUP)
    assert victim.first_seq == 2
    flip(victim.path, victim.payload_at + 5)
    lab.open()
    assert lab.gaps("t") == [(2, 4, "cap")]
    assert lab.seqs("t") == [1, 5]


def test_records_that_a_cap_removed_stay_removed_after_a_restart(lab: Lab) -> None:
    """The topic is empty when the import begins, and becomes ephemeral before it ends."""
    engine, others = lab.engine, list[object]()
    later = TopicConfig(durability="ephemeral", cap_records=3)
    put_topic(engine, "t", later, others.append, others.append)
    job = Import(lab, pieces(lab, 3))
    engine.queue.sync_now()
    append(engine, "t", body_of(4, 5), lambda done: others.append(done.first_seq), others.append)
    assert job.finish() == [(1, 3)]
    assert others == [False, 4]
    assert [run.ephemeral for run in lab.topic("t").runs] == [False, True]
    assert lab.seqs("t") == [3, 4, 5]
    lab.restart()
    assert lab.seqs("t") == [3]


def test_appends_to_the_same_topic_wait_for_the_import_and_others_do_not(lab: Lab) -> None:
    lab.put("u")
    job = Import(lab, pieces(lab, 2))
    results: list[tuple[str, int]] = []
    for name in "tu":
        append(
            lab.engine,
            name,
            body_of(1),
            lambda done: results.append((done.topic.name, done.first_seq)),
            pytest.fail,
        )
    lab.engine.queue.sync_now()
    assert results == [("u", 1)]
    job.finish()
    assert results == [("u", 1), ("t", 3)]


def test_an_abandoned_import_gives_its_seqs_back(lab: Lab) -> None:
    """Appends that were built on it fail, and may be repeated."""
    job = Import(lab, pieces(lab, 2))
    failures: list[ApiError] = []
    append(lab.engine, "t", body_of(1), pytest.fail, failures.append)
    lab.engine.queue.abandon(job.operation, ApiError("throttled", "given up"))
    lab.engine.queue.sync_now()
    assert [error.code for error in failures] == ["throttled"]
    assert [error and error.message for error in job.results] == ["given up"]
    assert lab.write("t", 1).first_seq == 1
