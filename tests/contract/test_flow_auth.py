"""Keys on routers, queues, watches and sockets: scopes, prefixes, and who may open which stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.server import Server
from tests.contract.streams import Streams
from tests.http.streaming import SocketClient
from tests.support import Answer

KEYS = {
    "root": "root",
    "read": "read:read",
    "write": "write:write",
    "rw": "rw:rw",
    "delete": "delete:delete",
    "admin": "admin:admin",
    "harbor": "harbor::harbor.",
    "odd": "o d&d=1",
}
SCOPED = ("read", "write", "rw", "delete", "admin")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = ",".join(KEYS.values())
    server = Server(tmp_path_factory.mktemp("flow-keys") / "data", {"TOPICS_API_KEYS": keys}).start()
    for name, config in (
        ("log", {}),
        ("queue", {"type": "queue"}),
        ("harbor.in", {}),
        ("harbor.out", {}),
        ("harbor.jobs", {"type": "queue"}),
        ("secret", {}),
    ):
        call(server, "root", "PUT", f"/v0/topics/{name}", config).ok(201)
    yield server
    server.kill()


def call(server: Server, key: str | None, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    client = server.client(key)
    answer = client.send(method, path, body, **headers)
    client.close()
    return answer


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def url_of(server: Server, key: str, *topics: str) -> str:
    url: str = call(server, key, "POST", "/v0/watch", {"topics": {t: {} for t in topics}}).ok()["stream_url"]
    return url


ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"}, {"admin"}),
    ("GET", "/v0/routers/r", None, {"read", "rw"}),
    ("GET", "/v0/routers", None, {"read", "rw"}),
    ("DELETE", "/v0/routers/never", None, {"delete"}),
    ("POST", "/v0/watch", {"topics": {"log": {}}}, {"read", "rw"}),
    ("POST", "/v0/topics/queue/claim", {"node": "w"}, {"rw"}),
    ("POST", "/v0/topics/queue/ack", {"node": "w", "seqs": []}, {"write", "rw"}),
    ("POST", "/v0/topics/queue/nack", {"node": "w", "seqs": []}, {"write", "rw"}),
    ("POST", "/v0/topics/queue/extend", {"node": "w", "seqs": [], "lease_ms": 1}, {"write", "rw"}),
]


@pytest.mark.parametrize(("method", "path", "body", "allowed"), ROUTES)
def test_scopes_of_the_routes(server: Server, method: str, path: str, body: Any, allowed: set[str]) -> None:
    call(server, "root", "PUT", "/v0/routers/r", {"source": "log", "dest": "copy"})
    for key in SCOPED:
        answer = call(server, key, method, path, body)
        if key in allowed:
            assert answer.status in (200, 201), answer.body
        else:
            answer.refused(403, "forbidden")
    call(server, None, method, path, body).refused(401, "unauthorized")
    call(server, "who", method, path, body).refused(401, "unauthorized")
    call(server, None, method, path + "?token=root", body).refused(401, "unauthorized")


def test_scopes_of_a_work_stream(server: Server, streams: Streams) -> None:
    path = "/v0/topics/queue/work?node=w"
    for key in SCOPED:
        reader = streams.get(server, path, **bearer(key))
        assert reader.status == (200 if key == "rw" else 403)
        assert streams.get(server, f"{path}&token={key}").status == reader.status
    for refused in (path, path + "&token=who", path + "&token="):
        streams.get(server, refused).refusal.refused(401, "unauthorized")


def test_tokens_in_the_query_are_decoded_and_the_first_counts(server: Server, streams: Streams) -> None:
    path = "/v0/topics/queue/work?node=w"
    assert streams.get(server, path + "&token=o+d%26d%3D1").status == 200
    assert streams.get(server, path + "&token=rw&token=who").status == 200
    assert streams.get(server, path + "&token=who&token=rw").status == 401


# Watch streams belong to the key that asked for them


def test_knowing_the_id_is_not_enough(server: Server, streams: Streams) -> None:
    url = url_of(server, "read", "log")
    for query, headers in (
        ("", {}),
        ("", bearer("who")),
        ("", bearer("root")),
        ("?token=who", {}),
        ("?token=root", {}),
    ):
        streams.get(server, url + query, **headers).refusal.refused(401, "unauthorized")
    assert streams.get(server, url, **bearer("read")).status == 200
    assert streams.get(server, url + "?token=read").status == 200


def test_an_unknown_id_is_not_found_for_anybody(server: Server, streams: Streams) -> None:
    url = "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA"
    for headers in ({}, bearer("who"), bearer("root"), bearer("write")):
        streams.get(server, url, **headers).refusal.refused(404, "not_found")
    streams.get(server, url + "?token=who").refusal.refused(404, "not_found")


# Sockets


def test_a_socket_needs_a_key_in_its_header(server: Server, streams: Streams) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for query, headers in (("", {}), ("", bearer("who")), ("?token=root", {})):
        server.fresh_request("GET", "/v0/ws" + query, None, upgrade | headers).refused(401, "unauthorized")
    for key in SCOPED:
        assert streams.socket(server, **bearer(key)).ask(op="ping")["op"] == "pong"


def forbidden(client: SocketClient, **command: Any) -> None:
    message = client.ask(**command)
    assert (message["op"], message.get("code")) == ("error", "forbidden"), message
    assert client.ask(op="ping")["op"] == "pong"


def test_every_command_is_checked(server: Server, streams: Streams) -> None:
    record = [{"data": 1}]
    for key in SCOPED:
        client = streams.socket(server, **bearer(key))
        subscribe = {"op": "subscribe", "topic": "log", "tail": True}
        if key in ("read", "rw"):
            assert client.ask(**subscribe)["op"] == "subscribed"
            assert client.read()["op"] == "caught_up"
            client.ask(op="unsubscribe", topic="log")
        else:
            forbidden(client, **subscribe)
        if key in ("write", "rw"):
            assert client.ask(op="publish", topic="log", records=record)["op"] == "ack"
            assert client.ask(op="publish", topic=f"born-{key}", records=record)["created"] is True
        else:
            forbidden(client, op="publish", topic="log", records=record)
        # A config needs the admin scope even where the topic exists.
        forbidden(client, op="publish", topic="log", records=record, config={})
    root = streams.socket(server, **bearer("root"))
    assert root.ask(op="publish", topic="log", records=record, config={})["op"] == "ack"


def test_names_on_a_socket(server: Server, streams: Streams) -> None:
    client = streams.socket(server, **bearer("harbor"))
    forbidden(client, op="subscribe", topic="secret")
    forbidden(client, op="subscribe", topics={"harbor.in": {}, "secret": {}}, lenient=True)
    forbidden(client, op="subscribe", topic="no-such-thing")
    forbidden(client, op="publish", topic="secret", records=[{"data": 1}])
    assert client.ask(op="subscribe", topic="harbor.in", tail=True)["op"] == "subscribed"


# Prefixes


def test_names_in_a_watch(server: Server) -> None:
    def ask(topics: list[str], query: str = "") -> Answer:
        body: Any = {"topics": {name: {} for name in topics}}
        return call(server, "harbor", "POST", "/v0/watch" + query, body)

    assert ask(["harbor.in", "secret"]).refused(403, "forbidden") == {"topic": "secret"}
    assert ask(["harbor.in", "absent"], "?lenient=true").refused(403, "forbidden") == {"topic": "absent"}
    ask(["harbor.in"]).ok()


def test_names_in_a_router(server: Server) -> None:
    def put(name: str, source: str, dest: str) -> Answer:
        return call(server, "harbor", "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})

    put("outside", "harbor.in", "harbor.out").refused(403, "forbidden")
    assert put("harbor.r", "secret", "harbor.out").refused(403, "forbidden") == {"topic": "secret"}
    assert put("harbor.r", "harbor.in", "secret").refused(403, "forbidden") == {"topic": "secret"}
    put("harbor.r", "harbor.in", "harbor.out").ok(201)
    call(server, "root", "PUT", "/v0/routers/harbor.s", {"source": "harbor.in", "dest": "hidden"}).ok(201)
    call(server, "root", "PUT", "/v0/routers/foreign", {"source": "harbor.in", "dest": "harbor.more"}).ok(201)
    for name in ("harbor.s", "foreign"):
        for method in ("GET", "DELETE"):
            refused = call(server, "harbor", method, f"/v0/routers/{name}")
            refused.refused(403, "forbidden")
            assert b"hidden" not in refused.body
    listed = call(server, "harbor", "GET", "/v0/routers").ok()["routers"]
    assert [entry["router"] for entry in listed] == ["harbor.r"]
    everything = call(server, "root", "GET", "/v0/routers").ok()["routers"]
    assert {"harbor.r", "harbor.s", "foreign"} <= {entry["router"] for entry in everything}
    call(server, "harbor", "GET", "/v0/routers/harbor.none").refused(404, "router_not_found")
    # Whatever it is told about its own names, it learns no others.
    repointed = put("harbor.s", "harbor.in", "harbor.new")
    repointed.refused(403, "forbidden")
    assert b"hidden" not in repointed.body
    back = {"source": "hidden", "dest": "harbor.in", "allow_cycle": True}
    call(server, "root", "PUT", "/v0/routers/back", back).ok(201)
    second_source = put("harbor.t", "harbor.out", "harbor.in")
    second_source.refused(409, "topic_exists_incompatible")
    assert b"hidden" not in second_source.body
    for name in ("harbor.r", "harbor.s", "foreign", "back"):
        assert call(server, "root", "DELETE", f"/v0/routers/{name}").ok()["deleted"] is True


def test_a_loop_through_foreign_topics_is_refused_without_their_names(server: Server) -> None:
    for name, source, dest in (("l1", "harbor.b", "between"), ("l2", "between", "harbor.a")):
        call(server, "root", "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}).ok(201)
    body = {"source": "harbor.a", "dest": "harbor.b"}
    answer = call(server, "harbor", "PUT", "/v0/routers/harbor.l3", body)
    assert answer.refused(409, "router_cycle") == {"cycle": ["harbor.a", "harbor.b", "harbor.a"]}
    assert b"between" not in answer.body


def test_names_of_queues(server: Server, streams: Streams) -> None:
    for verb in ("claim", "ack", "nack", "extend"):
        body: dict[str, Any] = {"node": "w"} | ({} if verb == "claim" else {"seqs": []})
        if verb == "extend":
            body["lease_ms"] = 1000
        call(server, "harbor", "POST", f"/v0/topics/queue/{verb}", body).refused(403, "forbidden")
        call(server, "harbor", "POST", f"/v0/topics/harbor.jobs/{verb}", body).ok()
    streams.get(server, "/v0/topics/queue/work?node=w&token=harbor").refusal.refused(403, "forbidden")
    assert streams.get(server, "/v0/topics/harbor.jobs/work?node=w&token=harbor").status == 200
    config = {"type": "queue", "dead_letter": "secret"}
    call(server, "harbor", "PUT", "/v0/topics/harbor.jobs", config).refused(403, "forbidden")
    config["dead_letter"] = "harbor.letters"
    call(server, "harbor", "PUT", "/v0/topics/harbor.jobs", config).ok(200)


def test_metrics_name_only_what_the_key_may_see(server: Server) -> None:
    text = call(server, "harbor", "GET", "/v0/metrics").body.decode()
    assert 'topic="harbor.in"' in text
    assert "secret" not in text
    assert 'topic="secret"' in call(server, "root", "GET", "/v0/metrics").body.decode()


def test_routers_that_go_with_a_topic_are_named_to_those_who_may_know_them(server: Server) -> None:
    for name, source in (("elsewhere", "secret"), ("harbor.router", "harbor.in")):
        definition = {"source": source, "dest": "harbor.fed" if source == "secret" else "harbor.away"}
        call(server, "root", "PUT", f"/v0/routers/{name}", definition).ok(201)
    for query in ("?dry_run=true", ""):
        dropped = call(server, "harbor", "DELETE", f"/v0/topics/harbor.fed{query}").ok()
        assert dropped["routers_removed"] == []
        dropped = call(server, "harbor", "DELETE", f"/v0/topics/harbor.away{query}").ok()
        assert dropped["routers_removed"] == ["harbor.router"]
    assert call(server, "root", "GET", "/v0/routers/elsewhere").status == 404
