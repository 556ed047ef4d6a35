"""Work streams: jobs pushed to a worker, as many as it can take, and given back when it goes."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams
from tests.http.streaming import EventReader
from tests.support import eventually


@pytest.fixture
def queue(new_topic: NewTopic) -> TopicHandle:
    return new_topic(type="queue")


def do(queue: TopicHandle, verb: str, *seqs: int, node: str = "w", **fields: Any) -> Any:
    body = {"node": node, **({"seqs": list(seqs)} if verb != "claim" else {}), **fields}
    return queue.server.send("POST", f"{queue.path}/{verb}", body).ok()


def counters(queue: TopicHandle) -> tuple[int, int]:
    found = queue.state()["queue"]
    return found["ready"], found["in_flight"]


def jobs(reader: EventReader, count: int) -> list[int]:
    return [reader.next("job").data["$seq"] for _ in range(count)]


def test_a_job_in_a_frame(server: Server, streams: Streams, queue: TopicHandle) -> None:
    queue.records({"data": {"cone": 6}, "tag": "t", "node": "producer", "meta": {"m": 1}})
    reader = streams.get(server, f"{queue.path}/work?node=w&lease_ms=45000")
    assert reader.headers["content-type"].startswith("text/event-stream")
    assert reader.headers["cache-control"] == "no-store"
    assert reader.headers["x-accel-buffering"] == "no"
    assert reader.block() == "retry: 2000"
    frame = reader.next("job")
    assert frame.id == "1"
    job = frame.data
    assert 30_000 < job.pop("deadline") - time.time() * 1000 < 46_000
    assert re.fullmatch("lease_[0-9a-f]+", job.pop("lease_id"))
    del job["$ts"]
    assert job == {
        "topic": queue.name,
        "$seq": 1,
        "$tag": "t",
        "deliveries": 1,
        "data": {"cone": 6},
        "meta": {"m": 1},
    }


@pytest.mark.parametrize(
    ("query", "most"), [("", 1), ("&max=0", 1), ("&max=what", 1), ("&max=-3", 1), ("&max=3", 3)]
)
def test_so_many_jobs_are_out_and_acks_free_places(
    server: Server, streams: Streams, queue: TopicHandle, query: str, most: int
) -> None:
    queue.write(*range(8))
    reader = streams.work(server, queue.name, "node=w" + query)
    assert jobs(reader, most) == list(range(1, most + 1))
    assert counters(queue) == (8 - most, most)
    for seq in range(1, 4):
        do(queue, "ack", seq)
        assert jobs(reader, 1) == [seq + most]
        assert counters(queue) == (8 - most - seq, most)


def test_a_place_comes_free_by_nack_and_by_expiry(
    server: Server, streams: Streams, queue: TopicHandle
) -> None:
    queue.write("a", "b")
    reader = streams.work(server, queue.name, "node=w&lease_ms=200")
    assert jobs(reader, 1) == [1]
    do(queue, "nack", 1, delay_ms=60_000)
    assert jobs(reader, 1) == [2]
    # Left alone it runs out and is delivered again.
    frame = reader.next("job")
    assert (frame.data["$seq"], frame.data["deliveries"]) == (2, 2)


def test_new_jobs_are_pushed_to_an_idle_stream(server: Server, streams: Streams, queue: TopicHandle) -> None:
    reader = streams.work(server, queue.name, "node=w&max=5")
    for seq in (1, 2, 3):
        queue.write(seq)
        assert jobs(reader, 1) == [seq]


def test_two_streams_share_the_work(server: Server, streams: Streams, queue: TopicHandle) -> None:
    readers = [streams.work(server, queue.name, f"node=w{number}&max=2") for number in (1, 2)]
    queue.write(*range(4))
    found = [jobs(reader, 2) for reader in readers]
    assert sorted(found[0] + found[1]) == [1, 2, 3, 4]


def test_a_gone_worker_gives_its_jobs_back(server: Server, streams: Streams, queue: TopicHandle) -> None:
    queue.write(*range(4))
    assert do(queue, "claim")["claimed"][0]["$seq"] == 1
    reader = streams.work(server, queue.name, "node=w&max=2&lease_ms=60000")
    assert jobs(reader, 2) == [2, 3]
    reader.close()
    eventually(lambda: counters(queue) == (3, 1))
    again = do(queue, "claim", max=9, node="other")["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(2, 2), (3, 2), (4, 1)]
    assert do(queue, "ack", 1)["acked"] == 1


def test_too_many_deliveries_on_a_stream(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    letters = new_topic()
    queue = new_topic(type="queue", max_deliveries=1, dead_letter=letters.name)
    reader = streams.work(server, queue.name, "node=w")
    queue.write("a", "b")
    assert jobs(reader, 1) == [1]
    do(queue, "nack", 1)
    assert jobs(reader, 1) == [2]
    eventually(lambda: letters.state()["count"] == 1)
    assert letters.diff()["records"][0]["data"] == "a"


def test_refusals_before_the_stream_opens(server: Server, streams: Streams, queue: TopicHandle) -> None:
    def refused(path: str, status: int, code: str, **headers: str) -> Any:
        return streams.get(server, path, **headers).refusal.refused(status, code)

    refused(f"{queue.path}/work", 400, "invalid_request")
    refused(f"{queue.path}/work?node=", 400, "invalid_request")
    refused(f"{queue.path}/work?node={'n' * 129}", 400, "invalid_request")
    assert refused("/v0/topics/absent/work?node=w", 404, "topic_not_found") == {"topic": "absent"}
    refused(f"{queue.path}/work?node=w", 406, "not_acceptable", Accept="application/json")
    # What the client can take is asked before what there is.
    refused("/v0/topics/absent/work", 406, "not_acceptable", Accept="application/json")
    log = server.topic("plain-log")
    assert refused(f"{log.path}/work?node=w", 409, "not_a_queue") == {"topic": log.name}
    server.send("POST", f"{queue.path}/work?node=w", {}).refused(405, "method_not_allowed")


def test_a_stream_ends_with_its_queue(server: Server, streams: Streams, queue: TopicHandle) -> None:
    reader = streams.work(server, queue.name, "node=w")
    queue.write(1)
    assert jobs(reader, 1) == [1]
    queue.drop().ok()
    frames = reader.rest()
    assert [frame.event for frame in frames] == ["error"]
    assert frames[0].data["code"] == 409


def test_a_window_of_claims_includes_streams(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    queue = new_topic(type="queue", claim_jitter_ms=400)
    queue.write(*range(6))
    first = streams.work(server, queue.name, "node=a&max=6")
    second = streams.work(server, queue.name, "node=b&max=6")
    assert len(jobs(first, 3)) == len(jobs(second, 3)) == 3
    assert counters(queue) == (0, 6)
