"""Routers over real sockets: definitions, lists, keys, what readers see, and restarts of a real process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import Answer, ServerProcess, eventually

_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Callable[..., tuple[str, ...]]:
    """Names that no other test of this module uses."""

    def make(*stems: str) -> tuple[str, ...]:
        number = next(_numbers)
        return tuple(f"{stem}-{number}" for stem in stems)

    return make


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """A server of the test's own."""
    servers: list[ServerProcess] = []

    def start(**environment: str) -> ServerProcess:
        servers.append(ServerProcess(tmp_path, **environment).start())
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def write(server: ServerProcess, topic: str, *data: Any) -> Any:
    records = [value if isinstance(value, dict) and "data" in value else {"data": value} for value in data]
    return server.post(f"/v0/topics/{topic}", {"records": records})


def diff(server: ServerProcess, topic: str, **body: Any) -> Any:
    return server.post(f"/v0/topics/{topic}/diff", body)


def data(server: ServerProcess, topic: str) -> list[Any]:
    return [record["data"] for record in diff(server, topic, limit=1000)["records"]]


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]


# --- definitions --------------------------------------------------------------------------------------


def test_bodies_need_a_content_type(server: ServerProcess) -> None:
    assert server.request("PUT", "/v0/routers/r").status == 415


def test_refusals_leave_nothing_behind(server: ServerProcess, fresh: Any) -> None:
    r, s, a, b, c = fresh("r", "s", "a", "b", "c")
    absent = server.request("PUT", f"/v0/routers/{r}", {"source": a, "dest": b, "create_dest": False})
    assert code(absent) == (404, "topic_not_found")
    assert absent.json["error"]["detail"] == {"topic": b}
    assert server.request("GET", f"/v0/topics/{a}").status == 404

    server.put(f"/v0/routers/{r}", {"source": a, "dest": b})
    second = server.request("PUT", f"/v0/routers/{s}", {"source": c, "dest": b})
    assert code(second) == (409, "topic_exists_incompatible")
    assert second.json["error"]["detail"] == {"topic": b, "reason": "router_dest_fan_in"}
    elsewhere = server.request("PUT", f"/v0/routers/{r}", {"source": a, "dest": c})
    assert code(elsewhere) == (409, "topic_exists_incompatible")
    assert elsewhere.json["error"]["detail"] == {
        "router": r,
        "reason": "router_repoint_forbidden",
        "existing_source": a,
        "existing_dest": b,
    }
    loop = server.request("PUT", f"/v0/routers/{s}", {"source": b, "dest": a})
    assert code(loop) == (409, "router_cycle")
    assert loop.json["error"]["detail"] == {"cycle": [b, a, b]}
    assert server.request("GET", f"/v0/topics/{c}").status == 404


# --- reading ------------------------------------------------------------------------------------------


def test_a_large_write_is_copied_whole_before_the_next_read(server: ServerProcess, fresh: Any) -> None:
    r, a, b = fresh("r", "a", "b")
    server.put(f"/v0/routers/{r}", {"source": a, "dest": b})
    write(server, a, *range(10_000))
    assert server.get(f"/v0/topics/{b}")["count"] == 10_000


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_of_destination(server: ServerProcess, fresh: Any, durability: str) -> None:
    r, a, b = fresh("r", "a", "b")
    server.put(f"/v0/topics/{b}", {"durability": durability})
    server.put(f"/v0/routers/{r}", {"source": a, "dest": b})
    for number in range(20):
        write(server, a, number)
        assert data(server, b)[-1] == number


def test_chains_and_waiting_readers_are_served_in_the_background(server: ServerProcess, fresh: Any) -> None:
    names = fresh("a", "b", "c", "d")
    for source, dest in itertools.pairwise(names):
        server.put(f"/v0/routers/{source}-{dest}", {"source": source, "dest": dest})
    write(server, names[0], "go")
    page = diff(server, names[-1], wait_ms=10_000)
    assert [record["data"] for record in page["records"]] == ["go"]


def test_copies_do_not_count_as_journalled_records(server: ServerProcess, fresh: Any) -> None:
    (stem,) = fresh("metered")

    def frames() -> Any:
        answer = server.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
        return answer["wal"]["frames"], answer["routers"]

    _, routers = frames()
    for number in range(5):
        server.put(f"/v0/routers/{stem}.{number}", {"source": stem, "dest": f"{stem}.d{number}"})
    before = frames()
    write(server, stem, 1, 2)
    for number in range(5):
        assert data(server, f"{stem}.d{number}") == [1, 2]
    assert frames() == (before[0] + 2, routers + 5)


# --- keys and limits ----------------------------------------------------------------------------------


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_keys_see_what_they_may(boot: Callable[..., ServerProcess]) -> None:
    server = boot(TOPICS_API_KEYS="root,ours::ours,reader:read,writer:rw+delete")
    root, ours = bearer("root"), bearer("ours")

    def put(name: str, source: str, dest: str, key: dict[str, str]) -> Answer:
        return server.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, key)

    assert put("ours.r", "ours.a", "ours.b", ours).status == 201
    assert put("theirs", "ours.a", "ours.c", ours).status == 403
    for source, dest, wrong in (("theirs.a", "ours.c", "theirs.a"), ("ours.a", "theirs.b", "theirs.b")):
        refused = put("ours.x", source, dest, ours)
        assert code(refused) == (403, "forbidden")
        assert refused.json["error"]["detail"] == {"topic": wrong}
    assert put("ours.out", "ours.a", "theirs.b", root).status == 201
    for method in ("GET", "DELETE"):
        refused = server.request(method, "/v0/routers/ours.out", None, ours)
        assert code(refused) == (403, "forbidden")
        assert "theirs.b" not in refused.text
    listed = server.request("GET", "/v0/routers", None, ours).json["routers"]
    assert [entry["router"] for entry in listed] == ["ours.r"]
    assert len(server.request("GET", "/v0/routers", None, bearer("reader")).json["routers"]) == 2
    assert put("r", "a", "b", bearer("writer")).status == 403
    assert server.request("DELETE", "/v0/routers/ours.r", None, bearer("reader")).status == 403
    assert server.request("DELETE", "/v0/routers/ours.r", None, bearer("writer")).status == 200
    assert server.request("GET", "/v0/routers").status == 401


def test_the_cap_on_routers(boot: Callable[..., ServerProcess]) -> None:
    server = boot(TOPICS_MAX_ROUTERS="1")
    server.put("/v0/routers/r", {"source": "a", "dest": "b"})
    refused = server.request("PUT", "/v0/routers/s", {"source": "a", "dest": "c"})
    assert code(refused) == (429, "throttled")
    assert refused.json["error"]["detail"] == {"limit": "max_routers", "max": 1}
    assert refused.headers["retry-after"] == "1"
    assert server.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status == 200
    server.request("DELETE", "/v0/routers/r")
    assert server.request("PUT", "/v0/routers/s", {"source": "a", "dest": "c"}).status == 201


# --- restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_changes_nothing(boot: Callable[..., ServerProcess], clean: bool) -> None:
    server = boot(TOPICS_SEGMENT_MAX_EVENTS="50")
    server.put("/v0/topics/a", {"durability": "fsync", "cap_records": 40})
    server.put("/v0/routers/r", {"source": "a", "dest": "b"})
    server.put("/v0/routers/once", {"source": "b", "dest": "c", "guarantee": "exactly_once"})
    for start in range(0, 300, 20):
        write(server, "a", *[{"data": n, "tag": str(n)} for n in range(start, start + 20)])
        data(server, "b")
    eventually(lambda: server.get("/v0/topics/c")["head_seq"] == 300)
    server.post("/v0/topics/b/delete", {"match": "7"})
    before = [diff(server, topic, limit=1000, include_tags=True)["records"] for topic in "abc"]
    totals = server.get("/v0/routers")["routers"]
    assert [len(records) for records in before] == [40, 299, 300]
    server.stop() if clean else server.kill()
    server.start()
    assert [diff(server, topic, limit=1000, include_tags=True)["records"] for topic in "abc"] == before
    assert server.get("/v0/routers")["routers"] == totals
    write(server, "a", "after")
    assert data(server, "b")[-1] == "after"
    assert server.get("/v0/topics/b")["head_seq"] == 301
