"""Purges and holds over HTTP: what operators ask for, and who may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.streaming import RunningApp
from tests.support import eventually

Start = Callable[..., RunningApp]


def finished(app: RunningApp, purge: str) -> Any:
    path = f"/v0/admin/purge/{purge}"
    eventually(lambda: app.call("GET", path).json["finished_ms"] is not None, 5)
    return app.call("GET", path).json


def test_a_purge_runs_in_the_background(app: RunningApp) -> None:
    app.write("t", {"data": 1, "tag": "x"}, 2)
    app.call("POST", "/v0/topics/t/delete", {"match": "x"})
    answer = app.call("POST", "/v0/admin/purge")
    assert (answer.status, answer.json["state"], answer.json["topics"]) == (202, "waiting", None)
    done = finished(app, answer.json["purge"])
    assert (done["state"], done["records"], done["error"]) == ("done", 1, None)
    assert done["journal_bytes"] > 0


def test_each_purge_has_its_turn(app: RunningApp) -> None:
    app.write("t", *range(10))
    ids = [app.call("POST", "/v0/admin/purge", {"topics": ["t"]}).json["purge"] for _ in range(5)]
    assert len(set(ids)) == 5
    assert {finished(app, purge)["state"] for purge in ids} == {"done"}


def test_what_is_refused(app: RunningApp) -> None:
    assert app.call("POST", "/v0/admin/purge", {"topics": ["nobody"]}).code == "topic_not_found"
    assert app.call("POST", "/v0/admin/purge", {"topics": "t"}).code == "invalid_request"
    assert app.call("GET", "/v0/admin/purge/nothing").code == "not_found"
    assert app.call("POST", "/v0/admin/backup/nothing/renew").code == "not_found"
    assert app.call("DELETE", "/v0/admin/backup/nothing").json["released"] is False


def test_a_hold_names_files_that_are_there(app: RunningApp) -> None:
    app.write("t", 1)
    finished(app, app.call("POST", "/v0/admin/purge").json["purge"])
    app.write("t", 2)
    hold = app.call("POST", "/v0/admin/backup").json
    assert [len(hold[kind]) for kind in ("snapshots", "segments", "journal")] == [2, 1, 1]
    for entry in (*hold["snapshots"], *hold["segments"], *hold["journal"]):
        assert Path(entry["path"]).is_file()
    assert hold["journal"][-1]["end"] == hold["position"]
    path = f"/v0/admin/backup/{hold['hold']}"
    assert app.call("POST", f"{path}/renew").json["expires_ms"] >= hold["expires_ms"]
    assert app.call("DELETE", path).json["released"] is True
    assert app.call("POST", f"{path}/renew").code == "not_found"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v0/admin/purge"),
        ("GET", "/v0/admin/purge/x"),
        ("POST", "/v0/admin/backup"),
        ("POST", "/v0/admin/backup/x/renew"),
        ("DELETE", "/v0/admin/backup/x"),
    ],
)
def test_only_keys_for_everything_may(start: Start, method: str, path: str) -> None:
    app = start(api_keys="all,some:admin:team-,reader:read+write+delete")
    assert app.call(method, path).code == "unauthorized"
    for key in ("some", "reader"):
        assert app.call(method, path, Authorization=f"Bearer {key}").code == "forbidden"
    assert app.call(method, path, Authorization="Bearer all").status != 403


def test_a_server_stops_in_the_middle_of_a_purge(app: RunningApp) -> None:
    app.write("t", *range(100))
    hold = app.call("POST", "/v0/admin/backup").json
    assert hold["hold"]
    purge = app.call("POST", "/v0/admin/purge").json["purge"]
    # The hold keeps the journal, so this one cannot come to its end.
    eventually(lambda: app.call("GET", f"/v0/admin/purge/{purge}").json["files_held"] > 0, 5)
    app.stop()
    known = app.app.node.purges.find(purge)
    assert known is not None
    assert (known.state, known.error) == ("failed", "the server was stopped")
