"""Queue endpoints over real sockets: answers, refusals, scopes, and restarts of a real process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.http.queue_app import LEASE_MS, QueueApp
from tests.support import ServerProcess, Wire, eventually, raw_request
from topics.values.clock import ManualClock


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


def test_a_fresh_queue_shows_its_counters_and_a_log_has_none(app: QueueApp) -> None:
    assert app.counters() == (0, 0, 0)
    app.write("plain", 1)
    assert "queue" not in app.state("plain")


def test_claim_answers_with_jobs_and_what_is_left(app: QueueApp) -> None:
    app.write("q", {"data": 1, "tag": "t", "node": "n"}, 2, 3)
    result = app.do("claim", node="w", max=2)
    assert set(result) == {"count", "ready", "claimed", "tombstone"}
    assert (result["count"], result["ready"]) == (2, 1)
    first, second = result["claimed"]
    assert set(first) == {"$seq", "$ts", "$tag", "lease_id", "deadline", "deliveries", "data"}
    assert first["deadline"] == app.clock.now_ms() + LEASE_MS
    assert (second["$seq"], second["data"], second["deliveries"]) == (2, 2, 1)
    assert app.counters() == (1, 2, 0)
    assert app.do("claim", node="w", max=9)["count"] == 1
    assert app.do("claim", node="w") == {"count": 0, "ready": 0, "claimed": [], "tombstone": None}


@pytest.mark.parametrize(("most", "count"), [(None, 1), (0, 1), (2, 2), (5000, 1000)])
def test_max_has_a_default_and_a_ceiling(app: QueueApp, most: int | None, count: int) -> None:
    app.write("q", *range(1100))
    body = {"node": "w"} if most is None else {"node": "w", "max": most}
    assert app.do("claim", **body)["count"] == count


@pytest.mark.parametrize(
    ("lease_ms", "expected"), [(None, LEASE_MS), (0, 100), (5, 100), (2500, 2500), (10**12, 86_400_000)]
)
def test_a_claimer_may_ask_for_another_lease(app: QueueApp, lease_ms: int | None, expected: int) -> None:
    app.write("q", 1)
    [job] = app.claim(lease_ms=lease_ms)
    assert job["deadline"] == app.clock.now_ms() + expected


def test_ack_deletes_for_good_and_skips_the_rest(app: QueueApp) -> None:
    app.write("q", 1, 2, 3)
    app.claim(2)
    result = app.do("ack", node="w", seqs=[1, 3, 77])
    assert result == {"acked": 1, "skipped": [3, 77], "lost": [], "ready": 1, "in_flight": 1}
    assert app.do("ack", node="w", seqs=[1])["skipped"] == [1]
    assert app.do("ack", node="w", seqs=[]) == {
        "acked": 0,
        "skipped": [],
        "lost": [],
        "ready": 1,
        "in_flight": 1,
    }
    diff = app.call("POST", "/v0/topics/q/diff", {}).json
    assert [record["$seq"] for record in diff["records"]] == [2, 3]
    assert diff["tombstone"] is None


def test_an_expired_lease_is_over_though_nobody_claimed_the_job_since(app: QueueApp) -> None:
    app.write("q", 1)
    app.claim()
    app.clock.advance(LEASE_MS + 1)
    assert app.do("ack", node="w", seqs=[1]) == {
        "acked": 0,
        "skipped": [1],
        "lost": [],
        "ready": 1,
        "in_flight": 0,
    }
    assert app.do("extend", node="w", seqs=[1], lease_ms=500)["skipped"] == [1]
    assert [job["deliveries"] for job in app.claim()] == [2]


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_an_fsync_queue_says_how_long_the_disk_took(app: QueueApp, durability: str) -> None:
    app.put(durability=durability)
    app.write("q", 1)
    app.claim()
    fsync_ms = app.ask("ack", node="w", seqs=[1]).json["performance"]["fsync_ms"]
    assert fsync_ms > 0 if durability == "fsync" else fsync_ms == 0


def test_nack_gives_back_now_or_later(app: QueueApp) -> None:
    app.write("q", 1, 2)
    app.claim(2)
    assert app.do("nack", node="w", seqs=[1, 9]) == {
        "nacked": 1,
        "skipped": [9],
        "lost": [],
        "ready": 1,
        "in_flight": 1,
    }
    result = app.do("nack", node="w", seqs=[2], delay_ms=300)
    assert result == {"nacked": 1, "skipped": [], "lost": [], "ready": 1, "in_flight": 0}
    assert app.state()["count"] == 2
    app.clock.advance(300)
    assert [job["$seq"] for job in app.claim(9)] == [1, 2]


def test_the_delay_has_a_ceiling(app: QueueApp) -> None:
    app.write("q", 1)
    app.claim()
    app.do("nack", node="w", seqs=[1], delay_ms=10**15)
    app.clock.advance(86_400_000)
    assert len(app.claim()) == 1


def test_extend_sets_the_deadline(app: QueueApp) -> None:
    app.write("q", 1, 2)
    [job] = app.claim()
    result = app.do("extend", node="w", seqs=[1, 2], lease_ms=5000)
    deadline = app.clock.now_ms() + 5000
    assert result == {"extended": 1, "skipped": [2], "lost": [], "deadlines": {"1": deadline}}
    app.clock.advance(5000)
    assert app.do("ack", node="w", seqs=[1], lease_ids=[job["lease_id"]])["acked"] == 1


@pytest.mark.parametrize(("lease_ms", "clamped"), [(0, 100), (10**12, 86_400_000)])
def test_an_extension_is_clamped_like_a_lease(app: QueueApp, lease_ms: int, clamped: int) -> None:
    app.write("q", 1)
    app.claim()
    deadlines = app.do("extend", node="w", seqs=[1], lease_ms=lease_ms)["deadlines"]
    assert deadlines == {"1": app.clock.now_ms() + clamped}


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_tokens_fence_off_those_who_lost_the_job(app: QueueApp, verb: str) -> None:
    extra = {"lease_ms": 500} if verb == "extend" else {}
    app.write("q", 1, 2)
    [old] = app.claim()
    app.clock.advance(LEASE_MS + 1)
    first, _ = app.claim(2)
    skipped = app.do(verb, node="w", seqs=[1], lease_ids=[old["lease_id"]], **extra)["skipped"]
    assert skipped == [1]
    answer = app.do(verb, node="w", seqs=[1, 2], lease_ids=[first["lease_id"], ""], **extra)
    assert answer["skipped"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"seqs": [1]},
        {"node": "", "seqs": [1]},
        {"node": "n" * 129, "seqs": [1]},
        {"node": "é" * 65, "seqs": [1]},
        {"node": None, "seqs": [1]},
        {"node": 5, "seqs": [1]},
        {"node": "w"},
        {"node": "w", "seqs": None},
        {"node": "w", "seqs": 1},
        {"node": "w", "seqs": ["1"]},
        {"node": "w", "seqs": [-1]},
        {"node": "w", "seqs": [1.5]},
        {"node": "w", "seqs": [2**64]},
        {"node": "w", "seqs": [1], "lease_ids": ["", ""]},
        {"node": "w", "seqs": [1, 2], "lease_ids": ["lease_1"]},
        {"node": "w", "seqs": [1], "lease_ids": ["lease_"]},
        {"node": "w", "seqs": [1], "lease_ids": ["lease_xyz"]},
        {"node": "w", "seqs": [1], "lease_ids": ["2f"]},
        {"node": "w", "seqs": [1], "lease_ids": ["lease_2f\n"]},
        {"node": "w", "seqs": [1], "lease_ids": [7]},
    ],
)
def test_malformed_requests_are_refused_by_all_three(app: QueueApp, body: dict[str, Any]) -> None:
    for verb, extra in (("ack", {}), ("nack", {}), ("extend", {"lease_ms": 500})):
        answer = app.ask(verb, **body, **extra)
        assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("claim", {}),
        ("claim", {"node": ""}),
        ("claim", {"node": "w", "max": -1}),
        ("claim", {"node": "w", "max": "3"}),
        ("claim", {"node": "w", "max": None}),
        ("claim", {"node": "w", "lease_ms": -1}),
        ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}),
        ("nack", {"node": "w", "seqs": [1], "delay_ms": None}),
        ("extend", {"node": "w", "seqs": [1]}),
        ("extend", {"node": "w", "seqs": [1], "lease_ms": None}),
        ("extend", {"node": "w", "seqs": [1], "lease_ms": -5}),
    ],
)
def test_malformed_numbers_are_refused(app: QueueApp, verb: str, body: dict[str, Any]) -> None:
    answer = app.ask(verb, **body)
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_more_than_a_thousand_seqs_are_too_many(app: QueueApp) -> None:
    for verb, extra in (("ack", {}), ("nack", {}), ("extend", {"lease_ms": 500})):
        answer = app.ask(verb, node="w", seqs=list(range(1001)), **extra)
        assert (answer.status, answer.code) == (400, "batch_too_large")
        assert app.ask(verb, node="w", seqs=list(range(1000)), **extra).status == 200


def test_an_empty_claim_is_malformed_not_mistyped(app: QueueApp) -> None:
    assert app.call("POST", "/v0/topics/q/claim").code == "invalid_request"
    for verb in ("ack", "nack", "extend"):
        assert app.call("POST", f"/v0/topics/q/{verb}").status in (400, 415)


def test_queue_endpoints_need_a_queue(app: QueueApp) -> None:
    app.write("plain", 1)
    body = {"node": "w", "seqs": [1], "lease_ms": 500}
    for verb in ("claim", "ack", "nack", "extend"):
        refusal = app.ask(verb, "plain", **body)
        assert (refusal.status, refusal.code) == (409, "not_a_queue")
        assert refusal.json["error"]["detail"] == {"topic": "plain"}
        refusal = app.ask(verb, "absent", **body)
        assert (refusal.status, refusal.code) == (404, "topic_not_found")
    assert app.call("GET", "/v0/topics/absent").status == 404


def test_the_delivery_limit_ends_in_a_dead_letter(app: QueueApp) -> None:
    app.call("DELETE", "/v0/topics/dead")
    app.put(max_deliveries=3, dead_letter="dead")
    app.write("q", {"data": "cracked", "tag": "t", "node": "n", "meta": {"k": 1}})
    for delivery in (1, 2, 3):
        assert [job["deliveries"] for job in app.claim()] == [delivery]
        app.clock.advance(LEASE_MS + 1)
    assert app.do("claim", node="w") == {"count": 0, "ready": 0, "claimed": [], "tombstone": None}
    assert app.counters() == (0, 0, 1)
    [letter] = app.call("POST", "/v0/topics/dead/diff", {"include_tags": True}).json["records"]
    assert (letter["data"], letter["$tag"], letter["$node"]) == ("cracked", "t", "n")
    assert letter["meta"] == {
        "k": 1,
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "3",
        "$dead_letter_src_seq": "1",
    }


def test_a_cohort_shares_what_is_there(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", *range(18))
    counts: list[int] = []

    def claimer(node: str) -> None:
        counts.append(len(app.claim(9, node)))

    threads = [threading.Thread(target=claimer, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(app.window()) == 3)
    app.close_window()
    for thread in threads:
        thread.join(20)
    assert counts == [6, 6, 6]
    assert app.counters() == (0, 18, 0)


def test_the_window_closes_by_itself(app: QueueApp) -> None:
    app.put(claim_jitter_ms=1)
    app.write("q", 1)
    assert len(app.claim()) == 1


def test_a_claimer_who_hangs_up_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    wire = Wire(app.address)
    wire.send(raw_request("POST", "/v0/topics/q/claim", b'{"node":"gone"}'))
    eventually(lambda: len(app.window()) == 1)
    wire.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)


def test_deleting_the_topic_takes_its_leases_along(app: QueueApp) -> None:
    app.write("q", 1, 2)
    app.claim(2)
    app.call("DELETE", "/v0/topics/q")
    app.put()
    assert app.counters() == (0, 0, 0)
    assert app.do("ack", node="w", seqs=[1])["skipped"] == [1]


def test_scopes(tmp_path: Path) -> None:
    keys = "reader:read,writer:write,both:rw,all"
    app = QueueApp(tmp_path, api_keys=keys)
    try:
        key = {name: {"Authorization": f"Bearer {name}"} for name in ("reader", "writer", "both", "all")}
        assert app.call("PUT", "/v0/topics/q", {"type": "queue"}, **key["all"]).status == 201
        for name, verb, status in [
            ("reader", "claim", 403),
            ("writer", "claim", 403),
            ("both", "claim", 200),
            ("reader", "ack", 403),
            ("writer", "ack", 200),
            ("reader", "nack", 403),
            ("writer", "nack", 200),
            ("reader", "extend", 403),
            ("writer", "extend", 200),
        ]:
            body = {"node": "w"} | ({} if verb == "claim" else {"seqs": []})
            if verb == "extend":
                body["lease_ms"] = 500
            assert app.call("POST", f"/v0/topics/q/{verb}", body, **key[name]).status == status
    finally:
        app.stop()


# --- restarts -----------------------------------------------------------------------------------------------


def test_a_clean_restart_keeps_durable_leases_and_forgets_the_others(tmp_path: Path) -> None:
    clock = ManualClock()
    app = QueueApp(tmp_path, clock)
    app.put("kept", leases_durable=True)
    app.put("q")
    for name in ("kept", "q"):
        app.write(name, 1, 2, 3)
        app.do("claim", name, node="w", max=2)
        app.do("ack", name, node="w", seqs=[1])
    app.stop()
    app = QueueApp(tmp_path, clock)
    try:
        assert app.counters("kept") == (1, 1, 0)
        assert app.counters("q") == (2, 0, 0)
        assert app.do("ack", "kept", node="w", seqs=[2])["acked"] == 1
    finally:
        app.stop()


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
def test_a_killed_process_undoes_no_acknowledgement(tmp_path: Path, durability: str) -> None:
    server = ServerProcess(tmp_path).start()
    try:
        for name, extra in (("q", {}), ("kept", {"leases_durable": True})):
            config = {"type": "queue", "durability": durability, **extra}
            server.put(f"/v0/topics/{name}", config)
            server.post(f"/v0/topics/{name}", {"records": [{"data": number} for number in range(5)]})
            server.post(f"/v0/topics/{name}/claim", {"node": "w", "max": 3})
            assert server.post(f"/v0/topics/{name}/ack", {"node": "w", "seqs": [1, 3]})["acked"] == 2
        server.kill()
        server.start()
        assert server.get("/v0/topics/q")["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}
        claimed = server.post("/v0/topics/q/claim", {"node": "w", "max": 9})["claimed"]
        assert [(job["$seq"], job["deliveries"]) for job in claimed] == [(2, 1), (4, 1), (5, 1)]
        assert server.get("/v0/topics/kept")["queue"] == {"ready": 2, "in_flight": 1, "dead_lettered": 0}
        claimed = server.post("/v0/topics/kept/claim", {"node": "v", "max": 9})["claimed"]
        assert [job["$seq"] for job in claimed] == [4, 5]
        assert server.post("/v0/topics/kept/ack", {"node": "w", "seqs": [2]})["acked"] == 1
    finally:
        server.kill()
