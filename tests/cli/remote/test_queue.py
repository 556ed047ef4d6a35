"""`topics queue`: jobs from the hand of a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Outcome, topics
from tests.support import ServerProcess
from topics.cli.remote.queue import worker

Run = Callable[..., Outcome]


@pytest.fixture
def run(server: ServerProcess) -> Run:
    return lambda *arguments: topics("queue", *arguments, TOPICS_URL=server.url)


def test_from_push_to_ack(run: Run, server: ServerProcess) -> None:
    assert run("push", "jobs", '{"n": 1}', "2", "--tag", "mail").rows[0]["created"] is True
    assert server.get("/v0/topics/jobs")["type"] == "queue"
    assert [row["data"] for row in run("peek", "jobs").rows] == [{"n": 1}, 2]
    assert [row["data"] for row in run("peek", "jobs", "--max", "1").rows] == [{"n": 1}]
    (job,) = run("claim", "jobs", "--lease", "60s").rows
    assert (job["topic"], job["seq"], job["tag"], job["deliveries"]) == ("jobs", 1, "mail", 1)
    assert job["lease_id"].startswith("lease_")
    assert len(run("claim", "jobs", "--max", "5").rows) == 1
    assert run("claim", "jobs").rows == []
    (acked,) = run("ack", "jobs", "1", "2").rows
    assert (acked["acked"], acked["skipped"]) == (2, [])
    again = run("ack", "jobs", "1")
    assert (again.code, again.rows[0]["skipped"]) == (1, [1])


def test_only_the_worker_that_holds_a_job_finishes_it(run: Run) -> None:
    run("push", "held", "1", "2")
    assert worker() == worker()
    assert "@" in worker()
    run("claim", "held")
    other = run("ack", "held", "1", "--node", "other")
    assert (other.code, "not held by other" in other.errors) == (1, True)
    assert run("ack", "held", "1", "--node", worker()).code == 0
    assert run("ack", "held", "2").code == 1


@pytest.mark.parametrize("action", [("claim",), ("ack", "1"), ("nack", "1")])
def test_a_worker_without_a_name_is_not_given_ours(run: Run, action: tuple[str, ...]) -> None:
    run("push", "unnamed", "1")
    verb, *seqs = action
    done = run(verb, "unnamed", *seqs, "--node", "")
    assert (done.code, done.output) == (2, "")
    assert "node must be 1 to 128 bytes" in done.errors
    assert run("leases", "unnamed").output == ""


def test_what_fails_becomes_a_dead_letter(run: Run, server: ServerProcess) -> None:
    server.put("/v0/topics/frail", {"type": "queue", "max_deliveries": 1, "dead_letter": "frail-dead"})
    run("push", "frail", '"job"')
    run("claim", "frail", "--lease", "10m")
    (lease,) = run("leases", "frail").rows
    assert (lease["topic"], lease["seq"], lease["node"], lease["deliveries"]) == ("frail", 1, worker(), 1)
    (nacked,) = run("nack", "frail", "1", "--error", "no such address").rows
    assert (nacked["nacked"], nacked["skipped"]) == (1, [])
    assert run("claim", "frail").rows == []
    (letter,) = topics("read", "frail-dead", TOPICS_URL=server.url).rows
    assert letter["meta"]["$dead_letter_from"] == "frail"
    assert letter["meta"]["$dead_letter_error"] == "no such address"
    (moved,) = run("redrive", "frail-dead", "--max", "10").rows
    assert moved["moved"] == 1
    (again,) = run("claim", "frail").rows
    assert (again["data"], again["deliveries"]) == ("job", 1)


def test_lost_jobs_are_told_before_the_others(run: Run, server: ServerProcess) -> None:
    server.put("/v0/topics/small", {"type": "queue", "cap_records": 2})
    run("push", "small", "1", "2", "3", "4")
    lost, job = run("claim", "small").rows
    assert lost["lost"] == {"gap_from": 1, "gap_to": 2, "reason": "cap"}
    assert (lost["topic"], lost["epoch"]) == ("small", server.get("/v0/topics/small")["epoch"])
    assert job["seq"] == 3


def test_a_log_is_no_queue(run: Run, server: ServerProcess) -> None:
    server.post("/v0/topics/a-log", {"records": [{"data": 1}]})
    for arguments in (("push", "a-log", "2"), ("claim", "a-log"), ("ack", "a-log", "1"), ("peek", "a-log")):
        refused = run(*arguments)
        assert (refused.code, "not_a_queue" in refused.errors) == (1, True)
    assert server.get("/v0/topics/a-log")["count"] == 1
    missing = run("claim", "a-logg")
    assert (missing.code, "did you mean a-log?" in missing.errors) == (1, True)
    assert run("nack", "a-log", "x").code == 2
    assert run("claim", "a-log", "--lease", "soon").code == 2
    # A server takes it for one, and somebody who asked for none would have a job.
    assert run("claim", "a-log", "--max", "0").code == 2
