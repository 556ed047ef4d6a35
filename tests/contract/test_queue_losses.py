"""Queues announce their losses: to the next worker, exactly, at least once, and not again."""

from __future__ import annotations

import os

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import SHORT_MS, as_queue
from tests.contract.server import TOMBSTONE_KEYS, Server
from tests.contract.streams import Streams
from tests.support import eventually


def test_jobs_that_a_cap_took(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", cap_records=4))
    queue.fill(4)
    assert queue.told(most=3) is None
    assert queue.do("ack", 1, 3)["acked"] == 2
    queue.fill(4)
    # Four are live, and 5 to 8 at that: 2 was in a worker's hands, 4 in nobody's.
    assert queue.told() == (2, 4, 2, "cap")
    assert queue.told() is None


def test_jobs_that_grew_too_old(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", ttl_ms=SHORT_MS))
    queue.fill(3)
    eventually(lambda: queue.state()["count"] == 0)
    assert queue.told() == (1, 3, 3, "ttl")
    queue.put(type="queue", ttl_ms=SHORT_MS, cap_records=1)
    queue.fill(2)
    eventually(lambda: queue.state()["count"] == 0)
    assert queue.told() == (4, 5, 2, "mixed")


def test_a_smaller_cap_takes_jobs_too(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.fill(5)
    queue.put(type="queue", cap_records=2)
    assert queue.told() == (1, 3, 3, "cap")


def test_what_was_finished_deleted_or_given_up_is_no_loss(new_topic: NewTopic) -> None:
    letters = new_topic()
    config = {"type": "queue", "cap_records": 9, "max_deliveries": 1, "dead_letter": letters.name}
    queue = as_queue(new_topic(**config))
    queue.records({"data": 1}, {"data": 2, "tag": "t"}, {"data": 3}, {"data": 4})
    queue.claim(2)
    queue.do("ack", 1)
    queue.do("nack", 2)
    queue.claim()
    assert queue.state()["queue"]["dead_lettered"] == 1
    queue.delete(before_seq=5)
    queue.fill(9)
    assert queue.told() is None
    queue.fill(1)
    assert queue.told() == (5, 5, 1, "cap")


def test_a_worker_that_names_lost_jobs_is_told_so(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", cap_records=3))
    queue.fill(3)
    queue.claim(3)
    queue.do("ack", 2)
    queue.fill(3)
    acked = queue.do("ack", 1, 2, 3, 4, 99)
    assert (acked["acked"], acked["skipped"], acked["lost"]) == (0, [2, 4, 99], [1, 3])
    nacked = queue.do("nack", 1, 2)
    assert (nacked["nacked"], nacked["skipped"], nacked["lost"]) == (0, [2], [1])
    extended = queue.do("extend", 3, 2, lease_ms=1000, lease_ids=["lease_1", ""])
    assert (extended["extended"], extended["skipped"], extended["lost"]) == (0, [2], [3])
    assert queue.do("ack")["lost"] == []


@pytest.mark.parametrize("cleanly", [True, False])
def test_what_no_worker_was_told_of_outlives_a_restart(boot: Boot, cleanly: bool) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", cap_records=2))
    queue.fill(3)
    assert queue.told() == (1, 1, 1, "cap")
    queue.fill(2)
    server.restart(cleanly=cleanly)
    assert queue.told() == (2, 3, 2, "cap")
    server.restart(cleanly=cleanly)
    assert queue.told() is None


@pytest.mark.parametrize("cleanly", [True, False])
def test_jobs_that_a_restart_took(boot: Boot, cleanly: bool) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", durability="ephemeral"))
    queue.fill(6)
    queue.claim(5)
    queue.do("ack", 1, 2, 4)
    server.restart(cleanly=cleanly)
    assert (queue.do("ack", 2, 3)["skipped"], queue.do("ack", 2, 3)["lost"]) == ([2], [3])
    assert queue.told() == (3, 6, 3, "cap")
    assert queue.told() is None


def test_jobs_behind_a_torn_end(boot: Boot) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue"))
    queue.fill(4)
    server.kill()
    [newest] = sorted((server.data_dir / "journal").glob("*.journal"))[-1:]
    content = newest.read_bytes()
    os.truncate(newest, content.rindex(b'"$seq":4'))
    server.start()
    told = queue.told(most=9)
    assert told is not None
    first, last, missed, reason = told
    assert (first, reason) == (4, "cap")
    assert missed == last - 4 + 1
    assert queue.told() is None


def test_a_work_stream_is_told(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", cap_records=2))
    queue.fill(3)
    reader = streams.work(server, queue.name, "node=w&max=2")
    frame = reader.next("tombstone")
    assert frame.id is None
    assert set(frame.data) == TOMBSTONE_KEYS
    assert (frame.data["gap_from"], frame.data["gap_to"], frame.data["missed_estimate"]) == (1, 1, 1)
    assert [reader.next("job").data["$seq"] for _ in range(2)] == [2, 3]
    # It has no place for a job, and hears of the loss all the same.
    queue.fill(1)
    assert reader.next("tombstone").data["gap_from"] == 2
    assert queue.told() is None


def test_a_stream_hears_of_jobs_that_grow_too_old_while_it_waits(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    queue = as_queue(new_topic(type="queue", ttl_ms=SHORT_MS))
    # In one write, so that they go together: otherwise the second may be handed out when the first has gone.
    queue.write(1, 2)
    reader = streams.work(server, queue.name, "node=w&max=1")
    assert reader.next("job").data["$seq"] == 1
    gap = reader.next("tombstone").data
    assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (1, 2, "ttl")


def test_a_worker_that_goes_without_its_answer_was_not_told(server: Server, new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", cap_records=1, claim_jitter_ms=400))
    queue.fill(2)
    body = b'{"node":"gone"}'
    head = f"POST {queue.path}/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with server.raw(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body):
        eventually(lambda: queue.state()["count"] == 1)
    assert queue.told() == (1, 1, 1, "cap")


def test_a_claim_that_waits_is_woken_by_a_loss(server: Server, new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", ttl_ms=2 * SHORT_MS))
    queue.fill(1)
    assert queue.claimed(lease_ms=60_000) == [1]
    assert queue.told(wait_ms=20_000) == (1, 1, 1, "ttl")
