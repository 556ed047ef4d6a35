"""Named cursors over the wire."""

from __future__ import annotations

import pytest

from tests.http.streaming import RunningApp
from tests.support import ServerProcess
from topics.http.routes import cursors as cursor_routes


def test_a_cursor_is_put_shown_listed_and_deleted(server: ServerProcess) -> None:
    epoch = server.put("/v0/topics/c.one", {}) and server.get("/v0/topics/c.one")["epoch"]
    server.post("/v0/topics/c.one", {"records": [{"data": i} for i in range(5)]})
    answer = server.request("PUT", "/v0/topics/c.one/cursors/spark", {"seq": 2})
    assert (answer.status, answer.json["created"]) == (201, True)
    answer = server.request("PUT", "/v0/topics/c.one/cursors/spark", {"seq": 3})
    assert (answer.status, answer.json["created"]) == (200, False)
    shown = server.get("/v0/topics/c.one/cursors/spark")
    assert shown.pop("performance")
    assert shown.pop("updated_ts") > 0
    assert shown == {"topic": "c.one", "consumer": "spark", "seq": 3, "epoch": epoch, "lag": 2}
    server.put("/v0/topics/c.one/cursors/other", {"seq": 1, "epoch": epoch})
    listed = server.get("/v0/topics/c.one/cursors")
    assert [(c["consumer"], c["lag"]) for c in listed["cursors"]] == [("other", 4), ("spark", 2)]
    assert server.request("DELETE", "/v0/topics/c.one/cursors/spark").json["deleted"] is True
    assert server.request("DELETE", "/v0/topics/c.one/cursors/spark").json["deleted"] is False
    answer = server.request("GET", "/v0/topics/c.one/cursors/spark")
    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "body",
    [{}, {"seq": None}, {"seq": -1}, {"seq": "1"}, {"seq": 1, "epoch": -1}, {"seq": 1, "epoch": None}],
)
def test_bad_cursors_are_refused(server: ServerProcess, body: object) -> None:
    server.put("/v0/topics/c.bad", {})
    answer = server.request("PUT", "/v0/topics/c.bad/cursors/x", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")


def test_a_bad_name_is_refused_only_where_it_would_create_something(server: ServerProcess) -> None:
    server.put("/v0/topics/c.name", {})
    assert server.request("PUT", "/v0/topics/c.name/cursors/a%20b", {"seq": 1}).status == 400
    assert server.request("GET", "/v0/topics/c.name/cursors/a%20b").status == 404
    assert server.request("DELETE", "/v0/topics/c.name/cursors/a%20b").json["deleted"] is False


def test_an_absent_topic_is_not_found(server: ServerProcess) -> None:
    for method, path in (("GET", ""), ("GET", "/x"), ("DELETE", "/x")):
        answer = server.request(method, "/v0/topics/c.absent/cursors" + path)
        assert answer.json["error"]["code"] == "topic_not_found"
    answer = server.request("PUT", "/v0/topics/c.absent/cursors/x", {"seq": 1})
    assert answer.json["error"]["code"] == "topic_not_found"


def test_reading_needs_read_and_moving_needs_write(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ServerProcess(tmp_path_factory.mktemp("keys"), TOPICS_API_KEYS="all,r:r,w:w").start()

    def status(method: str, path: str, key: str, body: object = None) -> int:
        return server.request(method, path, body, {"Authorization": f"Bearer {key}"}).status

    try:
        status("PUT", "/v0/topics/a", "all", {})
        one = "/v0/topics/a/cursors/c"
        assert status("PUT", one, "r", {"seq": 1}) == 403
        assert status("PUT", one, "w", {"seq": 1}) == 201
        assert status("GET", one, "w") == 403
        assert status("GET", one, "r") == 200
        assert status("DELETE", one, "r") == 403
        assert status("DELETE", one, "w") == 200
    finally:
        server.stop()


def test_a_page_ends_when_enough_was_looked_at(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is short then, or empty: the rest is behind its cursor, and nothing is left out."""
    monkeypatch.setattr(cursor_routes, "MOST_LOOKED_AT", 3)
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        app.call("PUT", f"/v0/topics/{name}", {})
        consumer = "rare" if name in ("t04", "t11") else "common"
        app.call("PUT", f"/v0/topics/{name}/cursors/{consumer}", {"seq": 0})
    for query, expected in (
        ("consumer=rare", ["t04", "t11"]),
        ("consumer=common", [name for name in names if name not in ("t04", "t11")]),
        ("prefix=t1", ["t10", "t11"]),
        ("", names),
    ):
        found, cursor, pages = [], "", 0
        while True:
            page = app.call("GET", f"/v0/cursors?{query}&page_size=2&cursor={cursor}").json
            found += [one["topic"] for one in page["cursors"]]
            pages += 1
            if "next_cursor" not in page:
                break
            cursor = page["next_cursor"]
        assert found == expected
        assert pages <= len(names)
