"""Keys: who is let in, for which verbs, under which names, and what the rest is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Client, Server
from tests.support import Answer

KEYS = {
    "root": "root",
    "reader": "reader:read",
    "writer": "writer:W",
    "deleter": "deleter:del",
    "admin": "admin:a",
    "both": "both:rw",
    "mixed": "mixed:R+Delete",
    "harbor": "harbor::harbor.|port:",
    "inner": "inner:read+write:harbor.",
}
RECORD = {"records": [{"data": 1}]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = " , ".join(KEYS.values()) + ",, "
    server = Server(tmp_path_factory.mktemp("keys") / "data", {"TOPICS_API_KEYS": keys}).start()
    yield server
    server.kill()


@pytest.fixture
def keyed(guarded: Server) -> Iterator[Any]:
    clients: list[Client] = []

    def client(name: str | None) -> Client:
        clients.append(guarded.client(name))
        return clients[-1]

    yield client
    for opened in clients:
        opened.close()


# Presenting a key


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "root",
        "Basic root",
        "Bearer",
        "Bearer ",
        "Bearer Root",
        "Bearer roo",
        "Bearer root2",
        "Bearer root:read",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0/topics"),
        ("PUT", "/v0/topics/a"),
        ("POST", "/v0/topics/a"),
        ("GET", "/v0/nope"),
        ("POST", "/v0/health/x"),
    ],
)
def test_without_a_known_key_nothing_is_answered(
    guarded: Server, header: str | None, method: str, path: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    guarded.fresh_request(method, path, None, headers).refused(401, "unauthorized")


def test_a_key_in_the_query_opens_no_ordinary_route(guarded: Server) -> None:
    guarded.fresh_request("GET", "/v0/topics?token=root").refused(401, "unauthorized")
    guarded.fresh_request("POST", "/v0/topics/a/diff?token=root").refused(401, "unauthorized")


def test_a_key_in_the_header_opens(guarded: Server) -> None:
    for header in ("Bearer root", "bearer root"):
        guarded.fresh_request("GET", "/v0/topics", None, {"Authorization": header}).ok()


def test_probes_are_open(guarded: Server) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert guarded.fresh_request("GET", path).status == 200
        assert guarded.fresh_request("GET", path, None, {"Authorization": "Bearer wrong"}).status == 200


def test_probes_can_be_closed(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="k:write", TOPICS_PROBE_AUTH="true")
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        server.fresh_request("GET", path).refused(401, "unauthorized")
        assert server.fresh_request("GET", path, None, {"Authorization": "Bearer k"}).status == 200


def test_without_keys_the_header_is_ignored(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS=" , ")
    server.fresh_request("GET", "/v0/topics", None, {"Authorization": "Bearer whatever"}).ok()


# Scopes


def ask(client: Client, verb: str, name: str) -> Answer:
    path = f"/v0/topics/{name}"
    requests: dict[str, tuple[str, str, Any]] = {
        "list": ("GET", "/v0/topics", None),
        "state": ("GET", path, None),
        "diff": ("POST", path + "/diff", {}),
        "append": ("POST", path, RECORD),
        "put": ("PUT", path, {}),
        "delete records": ("POST", path + "/delete", {"before_seq": 1}),
        "drop": ("DELETE", path + "?if_empty=true", None),
    }
    return client.send(*requests[verb])


NEEDS = {
    "list": "read",
    "state": "read",
    "diff": "read",
    "append": "write",
    "put": "admin",
    "delete records": "delete",
    "drop": "delete",
}
HAS = {
    "root": {"read", "write", "delete", "admin"},
    "reader": {"read"},
    "writer": {"write"},
    "deleter": {"delete"},
    "admin": {"admin"},
    "both": {"read", "write"},
    "mixed": {"read", "delete"},
    "harbor": {"read", "write", "delete", "admin"},
    "inner": {"read", "write"},
}


@pytest.mark.parametrize("verb", NEEDS)
@pytest.mark.parametrize("key", KEYS)
def test_each_verb_needs_its_scope(keyed: Any, key: str, verb: str) -> None:
    keyed("root").send("POST", "/v0/topics/harbor.scoped", RECORD)
    answer = ask(keyed(key), verb, "harbor.scoped")
    if NEEDS[verb] in HAS[key]:
        assert answer.status in (200, 201, 409)
    else:
        answer.refused(403, "forbidden")


def test_creating_with_a_config_needs_admin(keyed: Any) -> None:
    writer = keyed("writer")
    body = RECORD | {"config": {"cap_records": 5}}
    writer.send("POST", "/v0/topics/with-config", body).refused(403, "forbidden")
    keyed("root").send("GET", "/v0/topics/with-config").refused(404, "topic_not_found")
    writer.send("POST", "/v0/topics/with-config", RECORD).ok(201)
    # It exists now: the config is without effect, and so needs nothing.
    writer.send("POST", "/v0/topics/with-config", body).ok(200)
    assert keyed("root").send("GET", "/v0/topics/with-config").ok()["config"]["cap_records"] == 0
    writer.send("POST", "/v0/topics/null-config", RECORD | {"config": None}).ok(201)
    keyed("admin").send("POST", "/v0/topics/x", RECORD).refused(403, "forbidden")


# Names


@pytest.mark.parametrize("name", ["harbor.tides", "harbor.", "port:1"])
def test_names_under_a_prefix_are_open(keyed: Any, name: str) -> None:
    client = keyed("harbor")
    client.send("POST", f"/v0/topics/{name}", RECORD).ok(201)
    client.send("POST", f"/v0/topics/{name}/diff", {}).ok()
    client.send("DELETE", f"/v0/topics/{name}").ok()


@pytest.mark.parametrize("name", ["other", "harbor", "Harbor.tides", "port", "xharbor.", "%2e"])
@pytest.mark.parametrize("verb", [verb for verb in NEEDS if verb != "list"])
def test_names_outside_are_closed_whether_they_exist_or_not(keyed: Any, name: str, verb: str) -> None:
    ask(keyed("harbor"), verb, name).refused(403, "forbidden")
    assert keyed("root").send("GET", f"/v0/topics/{name}").status == 404
    if name == "other":
        keyed("root").send("PUT", "/v0/topics/other", {}).ok(201)
        ask(keyed("harbor"), verb, name).refused(403, "forbidden")
        keyed("root").send("DELETE", "/v0/topics/other").ok()


def test_percent_encoding_is_no_way_around_a_prefix(keyed: Any) -> None:
    keyed("harbor").send("PUT", "/v0/topics/h%61rbor.encoded", {}).ok(201)
    keyed("harbor").send("GET", "/v0/topics/%78other").refused(403, "forbidden")


def test_lists_are_filtered_by_name(keyed: Any) -> None:
    root = keyed("root")
    for name in ("harbor.l1", "harbor.l2", "harbor.l3", "hidden", "port:l"):
        root.send("PUT", f"/v0/topics/{name}", {})
    client = keyed("harbor")
    seen: list[str] = []
    cursor = ""
    while True:
        body = client.send("GET", f"/v0/topics?page_size=1&cursor={cursor}").ok()
        seen += [entry["topic"] for entry in body["topics"]]
        if "next_cursor" not in body:
            break
        cursor = body["next_cursor"]
    assert {"harbor.l1", "harbor.l2", "harbor.l3", "port:l"} <= set(seen)
    assert all(name.startswith(("harbor.", "port:")) for name in seen)
    assert client.send("GET", "/v0/topics?prefix=hid").ok()["topics"] == []


def test_a_dead_letter_topic_is_a_name_too(keyed: Any) -> None:
    client = keyed("harbor")
    config = {"type": "queue", "dead_letter": "elsewhere"}
    detail = client.send("PUT", "/v0/topics/harbor.q", config).refused(403, "forbidden")
    assert detail == {"topic": "elsewhere"}
    body = RECORD | {"config": config}
    detail = client.send("POST", "/v0/topics/harbor.q", body).refused(403, "forbidden")
    assert detail == {"topic": "elsewhere"}
    client.send("GET", "/v0/topics/harbor.q").refused(404, "topic_not_found")


# Order of checks


def test_scope_then_name_come_before_routing_body_and_topic(keyed: Any) -> None:
    reader, inner = keyed("reader"), keyed("inner")
    reader.send("POST", "/v0/topics/absent", b"{").refused(403, "forbidden")
    reader.request("POST", "/v0/topics/absent", b"x", {"Content-Type": "text/plain"}).refused(
        403, "forbidden"
    )
    inner.send("POST", "/v0/topics/outside/diff", b"{").refused(403, "forbidden")
    inner.send("GET", "/v0/topics/outside").refused(403, "forbidden")
    inner.send("PATCH", "/v0/topics/outside").refused(403, "forbidden")
    inner.send("PATCH", "/v0/topics/harbor.x").refused(405, "method_not_allowed")
    inner.send("GET", "/v0/nowhere").refused(404, "not_found")
    reader.send("GET", "/v0/topics/absent").refused(404, "topic_not_found")


def test_secrets_are_not_logged(guarded: Server, keyed: Any) -> None:
    keyed("inner").send("GET", "/v0/topics/outside").refused(403, "forbidden")
    guarded.fresh_request("GET", "/v0/topics", None, {"Authorization": "Bearer s3cr3t-guess"})
    assert "s3cr3t-guess" not in guarded.log()
    assert "reader" not in guarded.log()
