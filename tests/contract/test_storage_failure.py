"""A disk that takes no more: what was acknowledged stays readable, and nothing else is shown."""

from __future__ import annotations

import resource
import signal

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server, TopicHandle
from tests.support import eventually


def fill_the_disk(server: Server, spare_bytes: int) -> None:
    """From now on no file of the server may grow beyond the journal's size plus a little."""
    journal = max(path for path in (server.data_dir / "journal").iterdir() if path.is_file())
    limit = journal.stat().st_size + spare_bytes
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_write_that_cannot_be_stored_shows_nothing_and_stops_further_writes(
    boot: Boot, durability: str
) -> None:
    server = boot()
    topic = server.topic("t", durability=durability)
    topic.fill(3)
    before = topic.diff()["records"]
    fill_the_disk(server, 500)
    for body in ({"records": [{"data": "x" * 5000}]}, {"records": [{"data": 1}]}):
        topic.post(body).refused(500, "internal")
    topic.ask_delete({"before_seq": 3}).refused(500, "internal")
    topic.drop().refused(500, "internal")
    server.send("PUT", "/v0/topics/other", {}).refused(500, "internal")
    TopicHandle(server, "another").post({"records": [{"data": 1}]}).refused(500, "internal")

    state = topic.state()
    assert (state["head_seq"], state["next_seq"], state["count"], state["earliest_seq"]) == (3, 4, 3, 1)
    assert topic.diff()["records"] == before
    assert [entry["topic"] for entry in server.send("GET", "/v0/topics").ok()["topics"]] == ["t"]
    assert server.send("GET", "/v0/health").status == 200

    server.kill()
    server.start()
    assert topic.diff()["records"] == before
    assert topic.write("again")["seqs"] == [4]


def test_what_needs_no_disk_is_answered_as_ever(boot: Boot) -> None:
    """A retry of a write that is safe hears so; one that would be refused anyway hears why."""
    server = boot()
    topic = server.topic("t")
    keyed = {"records": [{"data": 1}], "idempotency_key": "k"}
    topic.post(keyed).ok()
    full = server.topic("full", discard="reject", cap_records=1)
    full.fill(1)
    fill_the_disk(server, 100)
    topic.post({"records": [{"data": "x" * 5000}]}).refused(500, "internal")
    again = topic.post(keyed).ok()
    assert (again["deduped"], again["seqs"]) == (True, [1])
    full.post({"records": [{"data": 1}]}).refused(422, "topic_full")
    TopicHandle(server, "none").post({"records": [{"data": 1}], "create": False}).refused(
        404, "topic_not_found"
    )
    TopicHandle(server, "-").post({"records": [{"data": 1}]}).refused(400, "invalid_request")
    topic.post(keyed | {"idempotency_key": "other"}).refused(500, "internal")


def test_a_clean_stop_on_a_full_disk_keeps_what_was_acknowledged(boot: Boot) -> None:
    server = boot()
    topic = server.topic("t")
    topic.fill(3)
    fill_the_disk(server, 100)
    topic.post({"records": [{"data": "x" * 5000}]}).refused(500, "internal")
    server.signal(signal.SIGTERM)
    server.exit_code()
    server.hang_up()
    server.start()
    assert topic.seqs() == [1, 2, 3]
    assert topic.write("again")["seqs"] == [4]


def test_age_takes_records_while_writes_are_off(boot: Boot) -> None:
    server = boot()
    topic = server.topic("t", ttl_ms=3000)
    topic.fill(2)
    fill_the_disk(server, 100)
    topic.post({"records": [{"data": "x" * 5000}]}).refused(500, "internal")
    assert topic.seqs() == [1, 2]
    eventually(lambda: topic.state()["count"] == 0, 20, "records outlived their time", every_s=0.05)
    assert (topic.seqs(), topic.gap()) == ([], (1, 2, "ttl"))
    server.kill()
    server.start()
    assert (topic.seqs(), topic.gap()) == ([], (1, 2, "ttl"))
