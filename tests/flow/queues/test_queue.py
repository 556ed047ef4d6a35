"""One queue on an engine: acks that share a frame, jobs cut from stored rows, and durable leases."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, numbers, unexpected
from topics.core.errors import ApiError
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.jobs import live_from, read_jobs
from topics.flow.queues.queue import Settlement, Verb
from topics.storage.frame import Frame, Kind

Answer = tuple[int, list[int], list[int]]


def acknowledge(lab: QueueLab, node: str, *seqs: int) -> list[Answer | ApiError]:
    """Not committed yet; the answer is in the list as soon as there is one."""
    answers: list[Answer | ApiError] = []
    guarded = [(seq, None) for seq in seqs]

    def done(ack: Settlement) -> None:
        answers.append((len(ack.seqs), ack.skipped, ack.lost))

    lab.queue().settle(Settlement(Verb.ACK, node, guarded, done, answers.append))
    return answers


def test_one_frame_for_all_that_come_before_the_journal_is_written(lab: QueueLab) -> None:
    fill(lab, 6)
    lab.claim(3, "a")
    lab.claim(3, "b")
    before = len(lab.frames())
    first, second = acknowledge(lab, "a", 3, 1), acknowledge(lab, "b", 5, 2)
    assert first == second == []
    lab.engine.queue.sync_now()
    assert (first, second) == ([(2, [], [])], [(1, [2], [])])
    assert len(lab.frames()) == before + 1
    assert lab.counters() == (0, 3, 0)
    lab.restart()
    assert numbers(lab.claim(8)) == [2, 4, 6]


def test_a_job_that_gets_too_old_on_the_way_is_finished(lab: QueueLab) -> None:
    lab.put("q", ttl_ms=500)
    fill(lab, 2)
    lab.claim(2)
    first = acknowledge(lab, "w", 1)
    lab.clock.advance(400)
    second = acknowledge(lab, "w", 2)
    lab.clock.advance(200)
    lab.engine.queue.sync_now()
    assert first == second == [(1, [], [])]
    assert (lab.claim(2), lab.told) == ([], None)
    lab.restart()
    assert (lab.claim(2), lab.told) == ([], None)


def test_when_they_cannot_be_committed_each_worker_is_told_and_all_jobs_are_free(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(1, "a")
    lab.claim(1, "b")
    lab.break_the_disk()
    first, second = acknowledge(lab, "a", 1), acknowledge(lab, "b", 2)
    lab.engine.queue.sync_now()
    assert [error.code for error in (*first, *second) if isinstance(error, ApiError)] == ["internal"] * 2
    assert lab.counters() == (2, 0, 0)


def test_the_same_from_a_sealed_segment(lab: QueueLab) -> None:
    lab.write("q", *({"data": number, "tag": f"t{number}", "meta": {"m": number}} for number in range(6)))
    lab.checkpoint(everything=True)
    lab.delete("q", match="t2")
    claimed = lab.claim(9)
    assert [(j["$seq"], j["$tag"], j["data"], j["meta"]) for j in claimed] == [
        (n + 1, f"t{n}", n, {"m": n}) for n in (0, 1, 3, 4, 5)
    ]


def test_jobs_of_a_damaged_segment_are_lost_not_claimed(lab: QueueLab) -> None:
    fill(lab, 4)
    lab.checkpoint(everything=True)
    fill(lab, 2)
    path = lab.segment_files()[0]
    path.write_bytes(b"\0" * path.stat().st_size)
    assert numbers(lab.claim(9)) == [5, 6]
    assert lab.counters() == (0, 2, 0)


def test_as_many_as_fit_and_always_one(lab: QueueLab) -> None:
    fill(lab, 3)
    topic = lab.topic("q")
    first, second, third = (len(job.tail) for job in read_jobs(topic, [1, 2, 3], 1 << 20))
    for room, count in ((0, 1), (first, 1), (first + second - 1, 1), (first + second, 2)):
        assert len(read_jobs(topic, [1, 2, 3], room)) == count
    assert len(read_jobs(topic, [1, 2, 3], first + second + third)) == 3


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"data": 1, "node": "n"}, {"data": 1}),
        ({"data": 1, "meta": {"m": 1}}, {"data": 1, "meta": {"m": 1}}),
        ({"data": 1, "tag": "t"}, {"data": 1, "$tag": "t"}),
    ],
    ids=["node", "meta", "tag"],
)
def test_a_job_in_memory_that_is_more_than_data_is_taken_apart(
    lab: QueueLab, record: dict[str, object], shown: dict[str, object]
) -> None:
    lab.write("q", record, record)
    for job in lab.claim(2):
        around = ("$seq", "$ts", "lease_id", "deadline", "deliveries")
        assert {name: value for name, value in job.items() if name not in around} == shown


def test_no_more_live_jobs_are_found_than_were_asked_for(lab: QueueLab) -> None:
    fill(lab, 4)
    lab.delete("q", seqs=[2])
    assert live_from(lab.topic("q"), 1, 2) == [1, 3]


def test_a_durable_claim_that_cannot_be_committed_gives_its_jobs_back(lab: QueueLab) -> None:
    lab.put("q", leases_durable=True)
    fill(lab, 2)
    lab.break_the_disk()
    for _ in range(2):
        with pytest.raises(ApiError) as refusal:
            lab.claim(2)
        assert refusal.value.code == "internal"
        assert lab.counters() == (2, 0, 0)


@pytest.mark.parametrize("kind", [Kind.LEASE, Kind.DEAD_LETTER])
def test_frames_of_what_is_no_queue_are_passed_over(lab: QueueLab, kind: Kind) -> None:
    """The topic is gone, or a restore has made it anew."""
    lab.put("log", type="log")
    for topic_id in (lab.topic("log").id, 999):
        lab.queues.replay(Frame(kind, 0, 1, topic_id, 1, 0, 0, position=0, payload=memoryview(b"?")))


@pytest.mark.parametrize(("durability", "answered"), [("disk", True), ("fsync", False)])
def test_a_durable_lease_is_on_disk_before_it_is_told(lab: QueueLab, durability: str, answered: bool) -> None:
    lab.put("q", leases_durable=True, durability=durability)
    fill(lab, 1)
    answers: list[Claim] = []
    lab.queue().serve([Claim("w", 1, LEASE_MS, answers.append, unexpected)])
    lab.engine.queue.flush()
    assert bool(answers) == answered
    lab.engine.queue.sync_now()
    assert answers
