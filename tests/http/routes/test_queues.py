"""Queue endpoints over real sockets: answers, refusals, scopes, and restarts of a real process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.queue_app import QueueApp
from tests.support import ServerProcess, Wire, eventually, raw_request
from topics.core.clock import ManualClock


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


def test_a_fresh_queue_shows_its_counters_and_a_log_has_none(app: QueueApp) -> None:
    assert app.counters() == (0, 0, 0)
    app.write("plain", 1)
    assert "queue" not in app.state("plain")


def test_the_delay_has_a_ceiling(app: QueueApp) -> None:
    app.write("q", 1)
    app.claim()
    app.do("nack", node="w", seqs=[1], delay_ms=10**15)
    app.clock.advance(86_400_000)
    assert len(app.claim()) == 1


@pytest.mark.parametrize(("lease_ms", "clamped"), [(0, 100), (10**12, 86_400_000)])
def test_an_extension_is_clamped_like_a_lease(app: QueueApp, lease_ms: int, clamped: int) -> None:
    app.write("q", 1)
    app.claim()
    deadlines = app.do("extend", node="w", seqs=[1], lease_ms=lease_ms)["deadlines"]
    assert deadlines == {"1": app.clock.now_ms() + clamped}


def test_an_empty_claim_is_malformed_not_mistyped(app: QueueApp) -> None:
    assert app.call("POST", "/v0/topics/q/claim").code == "invalid_request"
    for verb in ("ack", "nack", "extend"):
        assert app.call("POST", f"/v0/topics/q/{verb}").status in (400, 415)


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
