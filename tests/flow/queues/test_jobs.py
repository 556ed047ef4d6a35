"""Jobs as they are cut from stored records."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, numbers
from topics.flow.queues.jobs import live_from, read_jobs


def test_a_claimed_job_has_tag_and_meta_and_lease_but_no_node(lab: QueueLab) -> None:
    lab.write("q", {"data": {"a": [1]}, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": None})
    first, second = lab.claim(2)
    now = lab.clock.now_ms()
    token = first.pop("lease_id")
    assert token.startswith("lease_")
    assert int(token[6:], 16) > 0
    assert token == token.lower()
    assert first == {
        "$seq": 1,
        "$ts": now,
        "$tag": "t",
        "deadline": now + LEASE_MS,
        "deliveries": 1,
        "data": {"a": [1]},
        "meta": {"m": 1},
    }
    assert second["lease_id"] != token
    assert set(second) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}
    assert second["data"] is None


def test_the_same_from_a_sealed_segment(lab: QueueLab) -> None:
    lab.write("q", *({"data": number, "tag": f"t{number}", "meta": {"m": number}} for number in range(6)))
    lab.checkpoint(everything=True)
    lab.delete("q", match="t2")
    claimed = lab.claim(9)
    assert [(j["$seq"], j["$tag"], j["data"], j["meta"]) for j in claimed] == [
        (n + 1, f"t{n}", n, {"m": n}) for n in (0, 1, 3, 4, 5)
    ]


def test_a_claim_stops_at_its_byte_budget_but_gives_one_job_always(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.flow.queues.queue.MAX_CLAIM_BYTES", 50)
    lab.write("q", "x" * 100, "y" * 20, "z", "w")
    assert numbers(lab.claim(9)) == [1]
    assert numbers(lab.claim(9)) == [2, 3]
    assert [job["deliveries"] for job in lab.claim(9)] == [1]
    assert lab.counters() == (0, 4, 0)


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
