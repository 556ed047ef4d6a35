from types import SimpleNamespace

import pytest

from topics import codec
from topics.core import Settings, WritesOff
from topics.http.admission.readiness import Readiness
from topics.http.routes.probes import probe_routes


@pytest.fixture
def readiness():
    return Readiness(lambda: 0.5)


@pytest.fixture
def service(readiness):
    engine = SimpleNamespace(
        writes_off=None, sorted_names="abc", clock_lead=SimpleNamespace(told_ms=lambda: 0)
    )
    return SimpleNamespace(readiness=readiness, engine=engine, settings=Settings(), uptime_ms=lambda: 5)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_readiness_follows_the_gate(serve, readiness, service, path):
    running = serve(probe_routes(service), readiness=readiness, keys="k")
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
    assert running.request("GET", "/healthz").json["status"] == "ok"


def test_a_server_without_writes_is_ready_to_be_read_and_no_more(serve, readiness, service):
    running = serve(probe_routes(service), readiness=readiness)
    assert running.request("GET", "/v0/ready?for=writes").code == "not_ready"
    readiness.admit()
    assert running.request("GET", "/v0/ready?for=writes").json["status"] == "ready"
    for reason in WritesOff:
        service.engine.writes_off = reason
        answer = running.request("GET", "/v0/ready")
        assert (answer.status, answer.json["status"], answer.json["reason"]) == (200, "degraded", reason)
        assert (answer.json["wal_replay_complete"], answer.json["topics"]) == (True, 3)
        refused = running.request("GET", "/v0/ready?for=writes")
        assert (refused.status, refused.code) == (503, "not_ready")
        assert refused.json["error"]["detail"] == {"reason": reason}
        assert refused.headers["retry-after"] == "1"
    assert running.request("GET", "/v0/ready?for=fun").code == "invalid_request"


def test_probes_may_need_a_key_of_any_scope(serve, readiness, service):
    service.settings = Settings(probe_auth=True)
    running = serve(probe_routes(service), readiness=readiness, keys="k:d:x.")
    assert running.request("GET", "/v0/health").status == 401
    assert running.request("GET", "/v0/health", headers={"Authorization": "Bearer k"}).status == 200
