import pytest

from topics import codec
from topics.core import WritesOff
from topics.http.admission.readiness import Readiness
from topics.http.routes.probes import Probes
from topics.http.routing import Route


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_answers_in_every_state(serve, path):
    readiness = Readiness()
    running = serve(
        Probes(readiness, lambda: 3, key_needed=False, version="1.2").routes(), readiness=readiness, keys="k"
    )
    for change in (lambda: None, readiness.admit, readiness.drain):
        change()
        answer = running.request("GET", path)
        assert answer.status == 200
        assert set(answer.json) == {"status", "version", "uptime_ms"}
        assert answer.json["status"] == "ok"
        assert answer.json["version"] == "1.2"
        assert isinstance(answer.json["uptime_ms"], int)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_readiness_follows_the_gate(serve, path):
    readiness = Readiness(lambda: 0.5)
    running = serve(Probes(readiness, lambda: 3, key_needed=False).routes(), readiness=readiness)
    answer = running.request("GET", path)
    assert (answer.status, answer.code) == (503, "not_ready")
    assert answer.json["error"]["detail"] == {"replay_progress": 0.5}
    assert answer.headers["retry-after"] == "1"
    readiness.admit()
    answer = running.request("GET", path)
    assert answer.json == {"status": "ready", "wal_replay_complete": True, "topics": 3, "codec": codec.NAME}
    readiness.drain()
    answer = running.request("GET", path)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "shutting_down", "1")


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_a_server_without_writes_is_ready_to_be_read_and_no_more(serve, path):
    readiness = Readiness()
    reasons = []
    running = serve(
        Probes(readiness, lambda: 3, key_needed=False, writes_off=lambda: reasons[-1]).routes(),
        readiness=readiness,
    )
    reasons.append(None)
    assert running.request("GET", f"{path}?for=writes").code == "not_ready"
    readiness.admit()
    assert running.request("GET", f"{path}?for=writes").json["status"] == "ready"
    for reason in WritesOff:
        reasons.append(reason)
        answer = running.request("GET", path)
        assert (answer.status, answer.json["status"], answer.json["reason"]) == (200, "degraded", reason)
        assert (answer.json["wal_replay_complete"], answer.json["topics"]) == (True, 3)
        refused = running.request("GET", f"{path}?for=writes")
        assert (refused.status, refused.code) == (503, "not_ready")
        assert refused.json["error"]["detail"] == {"reason": reason}
        assert refused.headers["retry-after"] == "1"
    assert running.request("GET", f"{path}?for=fun").code == "invalid_request"


def test_probes_may_need_a_key_of_any_scope(serve):
    readiness = Readiness()
    running = serve(
        Probes(readiness, lambda: 0, key_needed=True).routes(), readiness=readiness, keys="k:d:x."
    )
    assert running.request("GET", "/v0/health").status == 401
    assert running.request("GET", "/v0/health", headers={"Authorization": "Bearer k"}).status == 200


def test_data_routes_wait_for_recovery_but_keys_come_first(serve):
    readiness = Readiness(lambda: 0.1)
    route = Route(method="GET", template="/v0/topics", handler=lambda exchange: exchange.reply(b"[]"))
    running = serve([route], readiness=readiness, keys="k")
    assert running.request("GET", "/v0/topics").status == 401
    answer = running.request("GET", "/v0/topics", headers={"Authorization": "Bearer k"})
    assert (answer.status, answer.code) == (503, "not_ready")
    readiness.admit()
    assert running.request("GET", "/v0/topics", headers={"Authorization": "Bearer k"}).status == 200
