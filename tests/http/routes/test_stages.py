"""Stages over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.bulk import ARROW, send, threads_that_open
from tests.http.streaming import RunningApp
from tests.support import Answer, ServerProcess, raw_request
from tests.support.arrow import arrow_stream
from topics.http.routes.arrow_append import INLINE_BYTES


def put(server: ServerProcess, path: str, *batches: dict[str, list[Any]], **headers: str) -> Answer:
    return send(server, "PUT", f"/v0/stages/{path}", arrow_stream(*batches), **headers)


def commit(server: ServerProcess, stage: str, *parts: Any, batch: int = 0, **more: Any) -> Answer:
    identity = {"id": more.pop("id", stage), "batch": batch}
    return server.request(
        "POST", f"/v0/stages/{stage}/commit", {"identity": identity, "parts": list(parts), **more}
    )


def data(server: ServerProcess, topic: str) -> list[Any]:
    return [record["data"] for record in server.post(f"/v0/topics/{topic}/diff", {})["records"]]


def epoch(server: ServerProcess, topic: str) -> int:
    found: int = server.get(f"/v0/topics/{topic}")["epoch"]
    return found


def test_parts_are_collected_and_committed_once(server: ServerProcess) -> None:
    answer = put(server, "one/parts/0?topic=st.a", {"data": ["1", "2"], "topic": [None, "st.b"]})
    assert answer.status == 200
    assert (answer.json["count"], answer.json["topics"]) == (2, ["st.a", "st.b"])
    put(server, "one/parts/x-7", {"data": ["3"], "topic": ["st.a"]})
    body = commit(server, "one", 0, "x-7").json
    assert body.pop("performance")
    assert body == {
        "committed": True,
        "deduped": False,
        "topics": {
            "st.a": {"first_seq": 1, "last_seq": 2, "count": 2, "epoch": epoch(server, "st.a")},
            "st.b": {"first_seq": 1, "last_seq": 1, "count": 1, "epoch": epoch(server, "st.b")},
        },
    }
    assert (data(server, "st.a"), data(server, "st.b")) == ([1, 3], [2])
    again = commit(server, "one", 0, "x-7").json
    assert (again["deduped"], again["topics"]) == (True, body["topics"])
    put(server, "one/parts/0?topic=st.a", {"data": ["1", "9"]})
    put(server, "one/parts/x-7", {"data": ["3"], "topic": ["st.a"]})
    answer = commit(server, "one", 0, "x-7")
    assert (answer.status, answer.json["error"]["code"]) == (409, "stage_conflict")
    assert answer.json["error"]["detail"] == {"id": "one", "batch": 0}
    assert data(server, "st.a") == [1, 3]


def test_the_commit_may_name_the_topic(server: ServerProcess) -> None:
    put(server, "two/parts/0", {"data": ["1"]})
    assert commit(server, "two", 0).json["error"]["code"] == "invalid_request"
    assert commit(server, "two", 0, topic="st.two").json["topics"]["st.two"]["count"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"identity": {"id": "x", "batch": 0}},
        {"identity": {"id": "x"}, "parts": []},
        {"identity": {"id": "", "batch": 0}, "parts": []},
        {"identity": {"id": "x", "batch": -1}, "parts": []},
        {"identity": {"id": "x", "batch": 0}, "parts": [0, "0"]},
        {"identity": {"id": "x", "batch": 0}, "parts": [], "topic": "no good"},
    ],
)
def test_bad_commits_are_refused(server: ServerProcess, body: object) -> None:
    answer = server.request("POST", "/v0/stages/bad/commit", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")


def test_bad_parts_are_refused(server: ServerProcess) -> None:
    for batch in ({"data": ["{"]}, {"tag": ["x"]}, {"data": ["1"], "topic": ["no good"]}):
        answer = put(server, "bad/parts/0?topic=st.bad", batch)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request"), batch
    answer = send(server, "PUT", "/v0/stages/bad/parts/0", b"{}", "application/json")
    assert (answer.status, answer.json["error"]["code"]) == (415, "unsupported_media_type")
    assert put(server, "s" * 257 + "/parts/0", {"data": ["1"]}).status == 400


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_large_part_is_not_opened_on_the_loop(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """It may have a hundred thousand columns."""
    threads = threads_that_open(monkeypatch)
    body = arrow_stream({"data": [f'"{n:050d}"' for n in range(count)], "tags": ["x"] * count})
    wire = app.wire()
    wire.send(raw_request("PUT", "/v0/stages/large/parts/0?topic=t", body, {"Content-Type": ARROW}))
    refused = wire.read()
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "tags" in refused.json["error"]["message"]
    assert [thread is app.thread for thread in threads] == [len(body) <= INLINE_BYTES]


def test_a_key_stages_only_for_topics_it_may_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ServerProcess(tmp_path_factory.mktemp("keys"), TOPICS_API_KEYS="all,some:w:a,r:r").start()
    some, everyone = {"Authorization": "Bearer some"}, {"Authorization": "Bearer all"}
    try:
        assert put(server, "s/parts/0", {"data": ["1"], "topic": ["b"]}, **some).status == 403
        assert put(server, "s/parts/0?topic=b", {"data": ["1"]}, **some).status == 403
        assert put(server, "s/parts/0?topic=a", {"data": ["1"]}, Authorization="Bearer r").status == 403
        assert put(server, "s/parts/0?topic=b", {"data": ["1"]}, **everyone).status == 200
        body = {"identity": {"id": "q", "batch": 0}, "parts": [0]}
        assert server.request("POST", "/v0/stages/s/commit", body, some).status == 404
        assert server.request("POST", "/v0/stages/s/commit", body | {"topic": "b"}, some).status == 403
        assert put(server, "s/parts/0?topic=a1", {"data": ["1"]}, **some).status == 200
        assert server.request("POST", "/v0/stages/s/commit", body, some).status == 200
    finally:
        server.stop()


def test_a_commit_tells_a_key_nothing_of_topics_it_may_not_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = ServerProcess(tmp_path_factory.mktemp("secret"), TOPICS_API_KEYS="all,some:w:a").start()
    some, everyone = {"Authorization": "Bearer some"}, {"Authorization": "Bearer all"}
    body = {"identity": {"id": "q", "batch": 0}, "parts": [0]}
    try:
        put(server, "s/parts/0?topic=hidden", {"data": ["1"]}, **everyone)
        before = server.request("POST", "/v0/stages/s/commit", body, some)
        assert server.request("POST", "/v0/stages/s/commit", body, everyone).status == 200
        # Its part is gone now; all that is left is the first answer.
        after = server.request("POST", "/v0/stages/s/commit", body, some)
        for answer in (before, after):
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
            assert b"hidden" not in answer.body
        assert server.request("POST", "/v0/stages/s/commit", body, everyone).json["deduped"]
    finally:
        server.stop()
