"""Queues across restarts: what was answered holds, and durable leases go on."""

from __future__ import annotations

import contextlib
import http.client
import time
from functools import partial
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.queues import as_queue, now_ms
from tests.contract.server import TopicHandle, in_parallel
from tests.support import eventually


@pytest.mark.parametrize("cleanly", [True, False])
def test_what_a_restart_keeps(boot: Boot, cleanly: bool) -> None:
    server = boot()
    plain = as_queue(server.topic("plain", type="queue", durability="fsync"))
    kept = as_queue(server.topic("kept", type="queue", leases_durable=True))
    for queue in (plain, kept):
        queue.write(*range(4))
        queue.claim(3, lease_ms=60_000)
        queue.do("ack", 2)
    token = kept.do("extend", 1, lease_ms=50_000)["deadlines"]["1"]
    server.restart(cleanly=cleanly)
    assert plain.state()["type"] == "queue"
    assert plain.counters() == (3, 0)
    assert plain.claimed(9) == [1, 3, 4]
    assert kept.counters() == (1, 2)
    assert kept.claimed(9) == [4]
    assert kept.do("extend", 1, lease_ms=60_000)["deadlines"]["1"] > token
    assert kept.do("ack", 1, 3)["acked"] == 2
    assert kept.claimed(9) == []
    assert kept.seqs() == [4]


def test_leases_that_become_durable_while_they_are_held(boot: Boot) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue"))
    queue.write(1, 2)
    queue.claim(1, lease_ms=60_000)
    server.topic("jobs", type="queue", leases_durable=True)
    server.restart(cleanly=False)
    assert queue.counters() == (1, 1)
    assert queue.claimed(9) == [2]


@pytest.mark.parametrize("ended_by", ["nack", "restart"])
def test_a_lease_that_ended_while_it_was_not_durable_stays_ended(boot: Boot, ended_by: str) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", leases_durable=True))
    queue.write(1, 2)
    queue.claim(1, lease_ms=600_000)
    server.topic("jobs", type="queue")
    if ended_by == "nack":
        assert queue.do("nack", 1)["nacked"] == 1
    else:
        server.restart(cleanly=False)
    server.topic("jobs", type="queue", leases_durable=True)
    assert queue.counters() == (2, 0)
    server.restart(cleanly=False)
    assert queue.counters() == (2, 0)
    assert queue.claimed(9) == [1, 2]


def test_a_lease_that_outlived_a_restart_holds_when_leases_are_durable_no_more(boot: Boot) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", leases_durable=True))
    queue.write(1, 2)
    queue.claim(1, lease_ms=600_000)
    server.restart(cleanly=False)
    server.topic("jobs", type="queue")
    assert queue.counters() == (1, 1)
    assert queue.claimed(9) == [2]
    assert queue.do("ack", 1)["acked"] == 1


def test_a_durable_lease_ends_at_its_deadline_all_the_same(boot: Boot) -> None:
    server = boot()
    queue = as_queue(server.topic("kept", type="queue", leases_durable=True))
    queue.write(1)
    [job] = queue.claim(lease_ms=1500)
    server.restart(cleanly=True)
    eventually(lambda: queue.counters() == (1, 0))
    assert now_ms() >= job["deadline"]
    [again] = queue.claim()
    assert (again["$seq"], again["deliveries"]) == (1, 2)
    assert again["lease_id"] != job["lease_id"]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_killed_server_gives_no_acknowledged_job_again(boot: Boot, durability: str) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", durability=durability))
    queue.write(*range(1000))
    queue.write(*range(1000))
    acked: set[int] = set()
    sent: set[int] = set()

    def work(node: str) -> None:
        client = server.client()
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
            while jobs := client.send("POST", queue.path + "/claim", {"node": node, "max": 3}).ok()[
                "claimed"
            ]:
                seqs = [job["$seq"] for job in jobs]
                sent.update(seqs)
                assert (
                    client.send("POST", queue.path + "/ack", {"node": node, "seqs": seqs}).ok()["acked"] == 3
                )
                acked.update(seqs)

    def kill() -> None:
        time.sleep(0.15)
        server.kill()

    in_parallel(partial(work, "a"), partial(work, "b"), kill)
    server.start()
    live = {record["$seq"] for record in queue.drain(limit=1000)[0]}
    assert acked
    assert not live & acked
    assert live >= set(range(1, 2001)) - sent
    assert queue.counters() == (len(live), 0)
    assert queue.claimed(1000) == sorted(live)[:1000]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_killed_server_takes_no_durable_lease_back(boot: Boot, durability: str) -> None:
    """Whatever was answered holds: leases and their deadlines, and jobs that were done or given back."""
    server = boot()
    config = {"type": "queue", "durability": durability, "leases_durable": True, "lease_ms": 600_000}
    queue = as_queue(server.topic("jobs", **config))
    queue.write(*range(1000))
    held: dict[int, Any] = {}
    returned: dict[int, int] = {}
    acked: set[int] = set()
    doubtful: set[int] = set()

    def work(node: str) -> None:
        client = server.client()

        def settle(verb: str, jobs: list[Any], **fields: Any) -> Any:
            for job in jobs:
                held.pop(job["$seq"])
            doubtful.update(job["$seq"] for job in jobs)
            body = {"node": node, "seqs": [job["$seq"] for job in jobs], **fields}
            answer = client.send("POST", f"{queue.path}/{verb}", body).ok()
            assert answer["skipped"] == []
            doubtful.difference_update(body["seqs"])
            return answer

        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
            while jobs := client.send("POST", queue.path + "/claim", {"node": node, "max": 5}).ok()[
                "claimed"
            ]:
                for job in jobs:
                    returned.pop(job["$seq"], None)
                held.update({job["$seq"]: job | {"node": node} for job in jobs})
                settle("ack", jobs[:1])
                acked.add(jobs[0]["$seq"])
                settle("nack", jobs[1:2], delay_ms=3_600_000)
                returned.update({job["$seq"]: job["deliveries"] for job in jobs[1:2]})
                deadlines = settle("extend", jobs[2:3], lease_ms=900_000)["deadlines"]
                for job in jobs[2:3]:
                    held[job["$seq"]] = job | {"node": node, "deadline": deadlines[str(job["$seq"])]}

    def kill() -> None:
        eventually(lambda: len(acked) >= 20)
        server.kill()

    in_parallel(partial(work, "a"), partial(work, "b"), kill)
    server.start()
    live = {record["$seq"] for record in queue.drain(limit=1000)[0]}
    assert not live & acked
    assert live >= {*held, *returned}
    ready, in_flight = queue.counters()
    # Unanswered at the time of the kill: a claim of each worker, or what it did with one job.
    assert 0 <= in_flight - len(held) <= 2 * 5 + len(doubtful)
    assert 0 <= len(live) - ready - in_flight - len(returned) <= len(doubtful)
    for seq, job in held.items():
        answer = queue.do("extend", seq, node=job["node"], lease_ids=[job["lease_id"]], lease_ms=1000)
        assert answer["extended"] == 1, job
    again = set(queue.claimed(1000, node="c"))
    assert not again & {*held, *returned, *acked}


@pytest.mark.parametrize("cleanly", [True, False])
def test_dead_letters_survive_in_one_place(boot: Boot, cleanly: bool) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue", max_deliveries=1, dead_letter="letters"))
    queue.write("a", "b")
    queue.claim(1)
    queue.do("nack", 1)
    assert queue.claimed(1) == [2]
    server.restart(cleanly=cleanly)
    assert [record["data"] for record in TopicHandle(server, "letters").diff()["records"]] == ["a"]
    assert queue.seqs() == [2]
    assert queue.state()["queue"]["dead_lettered"] == 1
