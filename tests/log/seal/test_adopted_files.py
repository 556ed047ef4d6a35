"""Records of a large write: how many share a run, how many bytes a file, and what they leave if it rots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from tests.support.damage import flip
from topics.log.lifecycle import put_topic
from topics.log.seal import adopted_files
from topics.log.seal.adopted_files import AdoptedFiles
from topics.log.topic import Topic
from topics.log.write.adoption import adopt, begin_adoption
from topics.log.write.append_request import parse_append
from topics.log.write.batch import Batch
from topics.log.write.group import Amount
from topics.storage.frame import Kind
from topics.values.config import TopicConfig
from topics.values.errors import ApiError
from topics.values.settings import MAX_SEQ

Piece = tuple[Topic, Batch]


def pieces(lab: Lab, *counts: int) -> list[Piece]:
    """So many records each."""
    texts = [b'{"records":[%b]}' % b",".join([b'{"data":7}'] * count) for count in counts]
    return [(lab.topic("t"), parse_append(text).batch) for text in texts]


class Job:
    """One large write, step by step."""

    def __init__(self, lab: Lab, taken: list[Piece]) -> None:
        self.lab, self.answers = lab, list[ApiError | None]()
        amount = Amount.of(lab.topic("t"), [batch for _, batch in taken])
        self.adoption = begin_adoption(
            lab.engine, [amount], lab.engine.now(), lambda: self.answers.append(None), self.answers.append
        )
        self.files = AdoptedFiles(lab.engine, self.adoption)
        self.left = iter(taken)

    def write(self, *, is_last: bool) -> None:
        self.lab.engine.next_segment += 1
        self.files.write(self.lab.engine.next_segment - 1, is_last=is_last)

    def finish(self) -> list[tuple[int, int]]:
        """First seq and number of records of each run."""
        assert not self.files.fill(self.left)
        self.write(is_last=True)
        assert self.lab.engine.rotate_to_adopt()
        adopt(self.lab.engine, self.adoption, self.files.runs, list)
        self.lab.engine.queue.sync_now()
        assert self.answers == [None]
        return [(run.base, run.count) for run in self.files.runs[self.lab.topic("t")]]


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", durability="fsync")
    return lab


def test_a_run_has_as_many_records_as_others_have(lab: Lab) -> None:
    assert Job(lab, pieces(lab, 2, 2, 1)).finish() == [(1, 4), (5, 1)]
    for _ in range(2):
        assert lab.seqs("t") == [1, 2, 3, 4, 5]
        lab.restart()


@pytest.mark.parametrize(("more", "runs"), [(0, [(1, 2), (3, 2)]), (1, [(1, 4)])])
def test_a_run_has_as_many_bytes_as_others_have(lab: Lab, more: int, runs: list[tuple[int, int]]) -> None:
    taken = pieces(lab, 2, 2)
    lab.engine.store.unsealed.max_events = 100
    lab.engine.store.unsealed.max_bytes = len(taken[0][1].render(1, lab.engine.now())) + more
    assert Job(lab, taken).finish() == runs


def test_what_is_written_at_once_is_enough_for_a_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """And runs that may grow are written if they are half of it, or if nothing more comes."""
    job = Job(lab, pieces(lab, 1, 1))
    monkeypatch.setattr(adopted_files, "FILE_BYTES", 1)
    assert job.files.fill(job.left)
    one = job.files._open_bytes
    assert one > 1
    monkeypatch.setattr(adopted_files, "FILE_BYTES", 2 * one + 2)
    job.write(is_last=False)
    assert not job.files.numbers, "too little"
    monkeypatch.setattr(adopted_files, "FILE_BYTES", 2 * one)
    job.write(is_last=False)
    assert len(job.files.numbers) == len(lab.segment_files()) == 1
    monkeypatch.setattr(adopted_files, "FILE_BYTES", one)
    assert job.files.fill(job.left), "exactly enough"
    assert job.finish() == [(1, 1), (2, 1)]
    assert lab.seqs("t") == [1, 2]


def test_the_last_seq_is_the_last(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(seq_base=MAX_SEQ - 1)
    lab.put("t", durability="fsync")
    with pytest.raises(ApiError, match="used up its seqs"):
        Job(lab, pieces(lab, 3))
    assert Job(lab, pieces(lab, 2)).finish() == [(MAX_SEQ - 1, 2)]


def test_a_frame_that_rots_still_tells_which_seqs_went_with_it(lab: Lab) -> None:
    lab.write("t", 1)
    Job(lab, pieces(lab, 3)).finish()
    lab.write("t", 5)
    lab.kill()
    (victim,) = (frame for frame in lab.frames() if frame.kind == Kind.GROUP)
    assert victim.first_seq == 2
    flip(victim.path, victim.payload_at + 5)
    lab.open()
    assert lab.gaps("t") == [(2, 4, "cap")]
    assert lab.seqs("t") == [1, 5]


def test_what_ephemeral_records_behind_it_have_pushed_out_stays_gone(lab: Lab) -> None:
    """The topic had no record when the write began, and became ephemeral before it was adopted."""
    engine, others = lab.engine, list[object]()
    later = TopicConfig(durability="ephemeral", cap_records=3)
    put_topic(engine, "t", later, others.append, others.append)
    job = Job(lab, pieces(lab, 3))
    engine.queue.sync_now()
    behind = parse_append(b'{"records":[{"data":4},{"data":5}]}')
    engine.append("t", behind, lambda op: others.append(op.first_seq), others.append)
    assert job.finish() == [(1, 3)]
    assert others == [False, 4]
    assert [run.ephemeral for run in lab.topic("t").runs] == [False, True]
    assert lab.seqs("t") == [3, 4, 5]
    lab.restart()
    assert lab.seqs("t") == [3]
