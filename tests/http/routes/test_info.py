"""What a server tells about itself, and to whom."""

from __future__ import annotations

import time
from collections.abc import Callable

import topics
from tests.http.streaming import RunningApp
from topics.core import WritesOff

Start = Callable[..., RunningApp]


def test_version_start_writes_and_room(start: Start) -> None:
    before = int(time.time() * 1000)
    app = start()
    info = app.call("GET", "/v0/info").json
    assert info["version"] == topics.__version__
    assert before <= info["started_ms"] <= time.time() * 1000
    assert (info["writes"], info["reason"]) == (True, None)
    assert info["disk"]["free_bytes"] > 0
    assert info["disk"]["reserve_bytes"] >= 0
    assert info["data_dir"] == app.app.node.engine.dirs.root


def test_why_there_are_no_writes(app: RunningApp) -> None:
    app.write("t", 1)
    app.inside(lambda: app.app.node.engine.end_writes(WritesOff.DIRECTORY_REPLACED, "it was replaced"))
    info = app.call("GET", "/v0/info").json
    assert (info["writes"], info["reason"]) == (False, "directory_replaced")
    assert app.call("GET", "/v0/ready").json["reason"] == "directory_replaced"
    refused = app.call("POST", "/v0/topics/t", {"records": [{"data": 2}]})
    assert (refused.status, refused.code) == (500, "internal")
    assert "it was replaced" in refused.json["error"]["message"]
    assert app.call("POST", "/v0/topics/t/diff", {}).json["head_seq"] == 1


def test_where_the_data_lies_is_for_administrators(start: Start) -> None:
    app = start(api_keys="reader:read,writer:write,boss")
    assert app.call("GET", "/v0/info").status == 401
    assert app.call("GET", "/v0/info", Authorization="Bearer writer").status == 403
    assert "data_dir" not in app.call("GET", "/v0/info", Authorization="Bearer reader").json
    assert "data_dir" in app.call("GET", "/v0/info", Authorization="Bearer boss").json
