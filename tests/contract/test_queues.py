"""Queues: who gets which job for how long, what an answer may still do to it, and where it ends up."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.queues import SHORT_MS, Queue, as_queue, now_ms
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.support import Answer, eventually


@pytest.fixture
def queue(new_topic: NewTopic) -> Queue:
    return as_queue(new_topic(type="queue"))


# Claims


def test_a_claim_shows_the_job_and_its_lease(queue: Queue) -> None:
    queue.records(
        {"data": {"cone": 6}, "tag": "glaze", "node": "producer", "meta": {"m": 1}},
        {"data": None},
        {"data": 3},
    )
    before = now_ms()
    body = queue.ask("claim", {"node": "w", "max": 2, "lease_ms": 45_000}).ok()
    after = now_ms()
    assert (body["count"], body["ready"]) == (2, 1)
    first, second = body["claimed"]
    stored = queue.diff()["records"][0]
    assert before + 45_000 - 2 <= first.pop("deadline") <= after + 45_000 + 2
    assert re.fullmatch("lease_[0-9a-f]+", first["lease_id"])
    assert first["lease_id"] != second["lease_id"]
    del first["lease_id"]
    assert first == {
        "$seq": 1,
        "$ts": stored["$ts"],
        "$tag": "glaze",
        "deliveries": 1,
        "data": {"cone": 6},
        "meta": {"m": 1},
    }
    assert set(second) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}
    assert queue.counters() == (1, 2)


def test_the_lease_of_the_topic_is_the_default(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", lease_ms=60_000))
    queue.fill(2)
    leases: list[Any] = [{}, {"lease_ms": None}]
    for lease in leases:
        [job] = queue.claim(**lease)
        assert 59_000 < job["deadline"] - now_ms() < 61_000


@pytest.mark.parametrize(("given", "applied"), [(0, 100), (1, 100), (10**12, 86_400_000), (5000, 5000)])
def test_lease_times_are_clamped(queue: Queue, given: int, applied: int) -> None:
    queue.write(1)
    before = now_ms()
    [job] = queue.claim(lease_ms=given)
    assert before + applied - 2 <= job["deadline"] <= now_ms() + applied + 2


def test_how_many_jobs_a_claim_gets(queue: Queue) -> None:
    queue.write(*range(1500))
    assert queue.claimed() == [1]
    assert queue.claimed(0) == [2]
    assert queue.claimed(3) == [3, 4, 5]
    assert queue.claimed(5000) == list(range(6, 1006))
    assert len(queue.claim(1000)) == 495
    assert queue.claim(7) == []
    assert queue.counters() == (0, 1500)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"node": ""},
        {"node": None},
        {"node": 5},
        {"node": "n" * 129},
        {"node": "w", "max": -1},
        {"node": "w", "max": 1.5},
        {"node": "w", "max": "2"},
        {"node": "w", "max": None},
        {"node": "w", "lease_ms": -1},
        {"node": "w", "lease_ms": "x"},
        [],
        b"{",
    ],
)
def test_unsound_claims(queue: Queue, body: Any) -> None:
    queue.write(1)
    queue.ask("claim", body).refused(400, "invalid_request")
    assert queue.counters() == (1, 0)


def test_a_node_of_the_full_length_may_claim(queue: Queue) -> None:
    queue.write(1)
    assert queue.claimed(node="n" * 128) == [1]


def test_returned_jobs_come_before_new_ones(queue: Queue) -> None:
    queue.write(*range(6))
    assert queue.claimed(4) == [1, 2, 3, 4]
    queue.do("nack", 4)
    queue.do("nack", 2)
    jobs = queue.claim(3)
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 2), (4, 2), (5, 1)]


def test_queue_endpoints_are_for_queues(server: Server, new_topic: NewTopic) -> None:
    log = as_queue(new_topic())
    gone = Queue(server, "no-such-queue")
    for verb in ("claim", "ack", "nack", "extend"):
        body = {"node": "w", "seqs": [1], "lease_ms": 1000}
        assert log.ask(verb, body).refused(409, "not_a_queue") == {"topic": log.name}
        assert gone.ask(verb, body).refused(404, "topic_not_found") == {"topic": gone.name}
        server.send("GET", f"{log.path}/{verb}").refused(405, "method_not_allowed")
    assert "queue" not in log.state()


def test_reading_a_queue_leaves_it_alone(queue: Queue) -> None:
    queue.write(1, 2)
    assert queue.seqs() == [1, 2]
    assert queue.claimed() == [1]
    assert queue.seqs() == [1, 2]
    assert queue.counters() == (1, 1)
    assert queue.claimed() == [2]


def test_no_job_is_out_twice(queue: Queue) -> None:
    queue.write(*range(300))
    taken: list[int] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        client = queue.server.client()
        barrier.wait()
        while True:
            body = {"node": f"w{number}", "max": 1 + number}
            jobs = client.send("POST", queue.path + "/claim", body).ok()["claimed"]
            if not jobs:
                break
            taken.extend(job["$seq"] for job in jobs)
        client.close()

    in_parallel(*[lambda number=number: work(number) for number in range(6)])
    assert sorted(taken) == list(range(1, 301))


# Cohorts


@pytest.mark.parametrize(
    ("jobs", "wanted", "dealt"),
    [(18, [9, 9, 9], [6, 6, 6]), (11, [3, 50], [3, 8]), (2, [5, 5, 5], [0, 1, 1])],
)
def test_claims_of_one_window_share_what_there_is(
    new_topic: NewTopic, jobs: int, wanted: list[int], dealt: list[int]
) -> None:
    queue = as_queue(new_topic(type="queue", claim_jitter_ms=500))
    queue.write(*range(jobs))
    claims: list[tuple[int, list[int], float]] = []
    barrier = threading.Barrier(len(wanted))

    def claim(number: int) -> None:
        client = queue.server.client()
        client.send("GET", "/v0/health")
        barrier.wait()
        body = {"node": f"w{number}", "max": wanted[number], "lease_ms": 10_000 * (number + 1)}
        got = client.send("POST", queue.path + "/claim", body).ok()["claimed"]
        for job in got:
            assert abs(job["deadline"] - now_ms() - 10_000 * (number + 1)) < 5000
        claims.append((wanted[number], [job["$seq"] for job in got], number))
        client.close()

    in_parallel(*[lambda number=number: claim(number) for number in range(len(wanted))])
    sizes = sorted((most, len(seqs)) for most, seqs, _ in claims)
    assert [size for _, size in sizes] == dealt
    assert sorted(seq for _, seqs, _ in claims for seq in seqs) == list(range(1, jobs + 1))
    assert all(seqs == sorted(seqs) for _, seqs, _ in claims)


def test_a_queue_that_goes_during_a_window_answers_its_claims(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", claim_jitter_ms=500))
    queue.write(1)
    answers: list[Answer] = []

    def claim() -> None:
        client = queue.server.client()
        answers.append(client.send("POST", queue.path + "/claim", {"node": "w"}))
        client.close()

    def drop() -> None:
        time.sleep(0.1)
        queue.drop().ok()

    in_parallel(claim, drop)
    assert answers[0].refused(404, "topic_not_found") == {"topic": queue.name}


# Ack, nack, extend


def test_an_ack_removes_jobs_in_silence(queue: Queue) -> None:
    queue.write(*range(4))
    queue.claim(3)
    body = queue.do("ack", 1, 3, 4, 99)
    assert set(body) == {"topic", "acked", "skipped", "lost", "ready", "in_flight", "performance"}
    assert (body["topic"], body["acked"], sorted(body["skipped"])) == (queue.name, 2, [4, 99])
    assert (body["ready"], body["in_flight"]) == (1, 1)
    page = queue.diff()
    assert [record["$seq"] for record in page["records"]] == [2, 4]
    assert page["tombstone"] is None
    again = queue.do("ack", 1, 3)
    assert (again["acked"], again["skipped"]) == (0, [1, 3])
    twice = queue.do("ack", 2, 2)
    assert (twice["acked"], twice["skipped"]) == (1, [2])
    assert queue.do("ack")["acked"] == 0


def test_only_the_holder_may_answer(queue: Queue) -> None:
    queue.write(1)
    queue.claim(node="mine")
    for verb, word in (("ack", "acked"), ("nack", "nacked"), ("extend", "extended")):
        body = queue.answer(verb, 1, node="theirs")
        assert (body[word], body["skipped"]) == (0, [1])
    assert queue.counters() == (0, 1)
    assert queue.do("ack", 1, node="mine")["acked"] == 1


def test_a_nack_returns_jobs_at_once_or_later(queue: Queue) -> None:
    queue.write(1, 2)
    queue.claim(2)
    body = queue.do("nack", 1, 7)
    assert set(body) == {"topic", "nacked", "skipped", "lost", "ready", "in_flight", "performance"}
    assert (body["nacked"], body["skipped"], body["ready"], body["in_flight"]) == (1, [7], 1, 1)
    body = queue.do("nack", 2, delay_ms=300)
    assert (body["nacked"], body["ready"], body["in_flight"]) == (1, 1, 0)
    assert queue.claimed(5) == [1]
    assert queue.state()["count"] == 2
    eventually(lambda: queue.counters() == (1, 1))
    [job] = queue.claim(5)
    assert (job["$seq"], job["deliveries"]) == (2, 2)
    assert queue.do("nack", 2, delay_ms=10**15)["nacked"] == 1
    assert queue.counters() == (0, 1)


def test_an_extension_sets_the_deadline_anew(queue: Queue) -> None:
    queue.write(1, 2)
    first, second = queue.claim(2, lease_ms=60_000)
    before = now_ms()
    body = queue.do("extend", 1, 2, 9, lease_ms=20_000)
    assert set(body) == {"topic", "extended", "skipped", "lost", "deadlines", "performance"}
    assert (body["extended"], body["skipped"]) == (2, [9])
    assert set(body["deadlines"]) == {"1", "2"}
    for deadline in body["deadlines"].values():
        assert before + 20_000 - 2 <= deadline <= now_ms() + 20_000 + 2
    # The lease is still the same one, and so is the count.
    assert queue.do("ack", 1, lease_ids=[first["lease_id"]])["acked"] == 1
    queue.do("nack", 2, lease_ids=[second["lease_id"]])
    assert queue.claim()[0]["deliveries"] == 2
    assert queue.do("extend", 2, lease_ms=0)["deadlines"]["2"] - now_ms() < 1000
    assert queue.do("extend", lease_ms=1000)["deadlines"] == {}


def test_a_lease_that_ran_out_answers_nothing(queue: Queue) -> None:
    queue.write(1)
    queue.claim(lease_ms=SHORT_MS)
    queue.wait_for_expiry()
    for verb, word in (("ack", "acked"), ("nack", "nacked"), ("extend", "extended")):
        body = queue.answer(verb, 1)
        assert (body[word], body["skipped"]) == (0, [1])
    assert queue.counters() == (1, 0)
    [job] = queue.claim()
    assert (job["$seq"], job["deliveries"]) == (1, 2)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"seqs": [1]}, "invalid_request"),
        ({"node": "", "seqs": [1]}, "invalid_request"),
        ({"node": "w"}, "invalid_request"),
        ({"node": "w", "seqs": 1}, "invalid_request"),
        ({"node": "w", "seqs": ["1"]}, "invalid_request"),
        ({"node": "w", "seqs": [-1]}, "invalid_request"),
        ({"node": "w", "seqs": [1.5]}, "invalid_request"),
        ({"node": "w", "seqs": list(range(1001))}, "batch_too_large"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_1", "lease_2"]}, "invalid_request"),
        ({"node": "w", "seqs": [1, 2], "lease_ids": ["lease_1"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["what"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_xyz"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": [5]}, "invalid_request"),
        ({"node": "é" * 65, "seqs": [1]}, "invalid_request"),
        ({"node": "w", "seqs": [2**64]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_2f\n"]}, "invalid_request"),
    ],
)
def test_unsound_answers(queue: Queue, verb: str, body: Any, code: str) -> None:
    queue.write(1)
    queue.claim()
    queue.ask(verb, {"lease_ms": 1000, **body}).refused(400, code)
    assert queue.counters() == (0, 1)


def test_an_extension_needs_a_time_and_a_nack_a_sound_delay(queue: Queue) -> None:
    queue.write(1)
    queue.claim()
    queue.ask("extend", {"node": "w", "seqs": [1]}).refused(400, "invalid_request")
    queue.ask("extend", {"node": "w", "seqs": [1], "lease_ms": None}).refused(400, "invalid_request")
    queue.ask("nack", {"node": "w", "seqs": [1], "delay_ms": -1}).refused(400, "invalid_request")
    queue.ask("nack", {"node": "w", "seqs": [1], "delay_ms": None}).refused(400, "invalid_request")
    assert queue.counters() == (0, 1)


def test_a_thousand_answers_in_one_call(queue: Queue) -> None:
    queue.write(*range(1000))
    seqs = queue.claimed(1000)
    assert queue.do("extend", *seqs, lease_ms=30_000)["extended"] == 1000
    assert queue.do("ack", *seqs)["acked"] == 1000
    assert queue.counters() == (0, 0)
    assert queue.state()["count"] == 0


def test_tokens_fence_off_an_older_delivery(queue: Queue) -> None:
    queue.write(1, 2)
    old = [job["lease_id"] for job in queue.claim(2)]
    queue.do("nack", 1)
    [new] = [job["lease_id"] for job in queue.claim(1)]
    assert new != old[0]
    for verb, word in (("ack", "acked"), ("nack", "nacked"), ("extend", "extended")):
        body = queue.answer(verb, 1, lease_ids=[old[0]])
        assert (body[word], body["skipped"]) == (0, [1])
    # An empty token guards nothing; no tokens at all leave node and seq to decide.
    assert queue.do("extend", 1, 2, lease_ids=["", old[1]], lease_ms=30_000)["extended"] == 2
    assert queue.do("extend", 1, lease_ids=[], lease_ms=30_000)["extended"] == 1
    body = queue.do("ack", 1, 2, lease_ids=[new, "lease_ffffff"])
    assert (body["acked"], body["skipped"]) == (1, [2])
    assert queue.do("ack", 2, lease_ids=[old[1]])["acked"] == 1


def test_an_ack_on_a_synced_queue_is_on_disk_first(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", durability="fsync"))
    queue.write(1)
    queue.claim()
    assert queue.do("ack", 1)["performance"]["fsync_ms"] > 0


# Dead letters


def test_too_many_deliveries_end_in_the_dead_letter_topic(server: Server, new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", lease_ms=SHORT_MS, max_deliveries=3, dead_letter="cracked"))
    queue.records({"data": {"x": 1}, "tag": "t", "node": "n", "meta": {"own": 1}})
    for delivery in (1, 2, 3):
        [job] = queue.claim()
        assert job["deliveries"] == delivery
        queue.wait_for_expiry()
    assert queue.state()["queue"] == {"ready": 1, "in_flight": 0, "dead_lettered": 0}
    assert queue.claim() == []
    assert queue.state()["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 1}
    assert queue.state()["count"] == 0
    assert queue.diff()["tombstone"] is None
    letters = TopicHandle(server, "cracked")
    [letter] = letters.diff(include_tags=True)["records"]
    assert letters.state()["type"] == "log"
    del letter["$ts"]
    assert letter == {
        "$seq": 1,
        "$tag": "t",
        "$node": "n",
        "data": {"x": 1},
        "meta": {
            "own": 1,
            "$dead_letter_from": queue.name,
            "$dead_letter_deliveries": "3",
            "$dead_letter_src_seq": "1",
        },
    }


def test_a_dead_letter_takes_no_place_in_a_claim(new_topic: NewTopic) -> None:
    letters = new_topic()
    queue = as_queue(new_topic(type="queue", max_deliveries=1, dead_letter=letters.name))
    queue.write(*range(6))
    queue.claim(3)
    queue.do("nack", 1, 2, 3)
    assert queue.claimed(2) == [4, 5]
    assert queue.claimed(2) == [6]
    assert [record["data"] for record in letters.diff()["records"]] == [0, 1, 2]
    assert queue.state()["queue"]["dead_lettered"] == 3


@pytest.mark.parametrize("config", [{"max_deliveries": 2}, {"dead_letter": "never-born"}])
def test_without_a_limit_or_a_place_jobs_come_back_for_ever(
    server: Server, new_topic: NewTopic, config: dict[str, Any]
) -> None:
    queue = as_queue(new_topic(type="queue", **config))
    queue.write(1)
    for delivery in range(1, 6):
        [job] = queue.claim()
        assert job["deliveries"] == delivery
        queue.do("nack", 1)
    server.send("GET", "/v0/topics/never-born").refused(404, "topic_not_found")


def test_a_dead_letter_topic_that_is_full_leaves_the_job_in_the_queue(new_topic: NewTopic) -> None:
    letters = new_topic(cap_records=1, discard="reject")
    letters.write("full")
    queue = as_queue(new_topic(type="queue", max_deliveries=1, dead_letter=letters.name))
    queue.write(1)
    queue.claim()
    queue.do("nack", 1)
    queue.claim()
    state = queue.state()
    assert (state["count"], state["queue"]["dead_lettered"]) == (1, 0)
    letters.delete(before_seq=2)
    eventually(lambda: queue.claim() == [] and queue.state()["queue"]["dead_lettered"] == 1)
    assert [record["data"] for record in letters.diff()["records"]] == [1]


@pytest.mark.parametrize("dead_letter", ["self", "bad name", 5])
def test_a_dead_letter_topic_is_another_one(server: Server, dead_letter: Any) -> None:
    config = {"type": "queue", "dead_letter": dead_letter}
    server.send("PUT", "/v0/topics/self", config).refused(400, "invalid_request")


# Jobs are records


def test_jobs_are_lost_like_records(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", cap_records=3))
    queue.fill(3)
    assert queue.claimed(2) == [1, 2]
    queue.write("evicts the first")
    assert queue.counters() == (2, 1)
    assert queue.do("ack", 1)["lost"] == [1]
    queue.delete(before_seq=3)
    assert queue.counters() == (2, 0)
    assert queue.claimed(9) == [3, 4]
    assert queue.gap() == (1, 2, "cap")


def test_jobs_that_expire_are_not_claimed(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", ttl_ms=150))
    queue.fill(2)
    queue.claim(1, lease_ms=60_000)
    eventually(lambda: queue.state()["count"] == 0)
    assert queue.counters() == (0, 0)
    assert queue.claim(5) == []


def test_deliveries_outlive_a_change_of_config(queue: Queue) -> None:
    queue.write(1)
    queue.claim()
    queue.put(type="queue", lease_ms=5000)
    assert queue.counters() == (0, 1)
    queue.do("nack", 1)
    assert queue.claim()[0]["deliveries"] == 2
    queue.server.send("PUT", queue.path, {}).refused(409, "topic_exists_incompatible")


def test_a_router_feeds_a_queue(server: Server, queue: Queue, new_topic: NewTopic) -> None:
    source = new_topic()
    server.send("PUT", f"/v0/routers/{source.name}", {"source": source.name, "dest": queue.name}).ok(201)
    source.write("x")
    [job] = queue.claim()
    assert job["data"] == "x"


def test_counters_add_up_whatever_happens(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.write(*range(10))
    queue.claim(6, lease_ms=SHORT_MS)
    queue.claim(1)
    queue.do("nack", 1, delay_ms=60_000)
    queue.do("ack", 2)
    queue.delete(before_seq=4)
    state = queue.state()
    assert state["count"] == 7
    eventually(lambda: queue.counters() == (6, 1))
    queue.do("nack", 7, delay_ms=60_000)
    assert queue.counters() == (6, 0)
    assert queue.state()["count"] == 7
