"""Pipelines say how they fare; those that failed are named in the list, the overview and `topics status`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server

KEYS = "all,shop:read+write:shop.,viewer:read"


def told(server: Server, **headers: str) -> list[Any]:
    shown: list[Any] = server.send("GET", "/v0/pipelines", **headers).ok()["pipelines"]
    return shown


def failures(server: Server, **headers: str) -> list[Any]:
    overview = server.send("GET", "/v0/overview?page_size=1", **headers).ok()
    found = [item for item in overview["attention"] if item["kind"] == "failed"]
    assert overview["attention_counts"].get("failed", 0) == len(found)
    return found


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_failure_is_named_until_it_is_over(boot: Boot, cleanly: bool) -> None:
    server = boot()
    assert told(server) == failures(server) == []
    failed = {"kind": "archive", "state": "failed", "why": "no space left <b>"}
    first = server.send("PUT", "/v0/pipelines/lake", failed)
    assert first.status == 201
    assert first.json["created"] is True
    server.send("PUT", "/v0/pipelines/other", {"state": "running"}).ok(201)
    server.restart(cleanly=cleanly)
    lake, other = told(server)
    assert lake["age_ms"] >= 0
    assert lake == failed | {"pipeline": "lake", "since_ms": first.json["since_ms"], "age_ms": lake["age_ms"]}
    assert (other["kind"], other["state"], other["why"]) == ("pipeline", "running", None)
    (item,) = failures(server)
    assert item == {
        "kind": "failed",
        "pipeline": "lake",
        "does": "archive",
        "why": "no space left <b>",
        "since_ms": first.json["since_ms"],
    }
    command = [sys.executable, "-m", "topics", "status", "--url", server.url]
    status = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert status.returncode == 1
    assert "pipeline lake has failed: no space left <b>" in status.stdout
    again = server.send("PUT", "/v0/pipelines/lake", {"kind": "archive", "state": "running"}).ok()
    assert (again["created"], again["why"]) == (False, None)
    assert failures(server) == []
    dropped = server.send("DELETE", "/v0/pipelines/lake").ok()
    assert (dropped["pipeline"], dropped["deleted"]) == ("lake", True)
    assert server.send("DELETE", "/v0/pipelines/lake").ok()["deleted"] is False


def test_what_is_refused(boot: Boot) -> None:
    server = boot()
    one = "/v0/pipelines/lake"
    for wrong in ({}, {"state": "asleep"}, {"state": 1}, {"state": "failed", "errors": "x"}, {"kind": "x"}):
        server.send("PUT", one, wrong).refused(400, "invalid_request")
    server.send("PUT", "/v0/pipelines/a%20b", {"state": "failed"}).refused(400, "invalid_request")
    server.send("GET", one).refused(405, "method_not_allowed")
    server.send("GET", "/v0/pipelines?colour=1").refused(400, "invalid_request")
    assert told(server) == []


def test_keys_see_and_tell_of_their_own_names(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS=KEYS)

    def by(secret: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret}"}

    failed = {"state": "failed"}
    server.send("PUT", "/v0/pipelines/lake", failed).refused(401, "unauthorized")
    server.send("PUT", "/v0/pipelines/lake", failed, **by("viewer")).refused(403, "forbidden")
    server.send("PUT", "/v0/pipelines/lake", failed, **by("shop")).refused(403, "forbidden")
    server.send("PUT", "/v0/pipelines/lake", failed, **by("all")).ok(201)
    server.send("PUT", "/v0/pipelines/shop.lake", failed, **by("shop")).ok(201)
    for secret, names in (
        ("all", ["lake", "shop.lake"]),
        ("viewer", ["lake", "shop.lake"]),
        ("shop", ["shop.lake"]),
    ):
        assert [one["pipeline"] for one in told(server, **by(secret))] == names
        assert [one["pipeline"] for one in failures(server, **by(secret))] == names
    page = server.send("GET", "/v0/pipelines?page_size=1", **by("all")).ok()
    rest = server.send("GET", f"/v0/pipelines?cursor={page['next_cursor']}", **by("all")).ok()
    assert [one["pipeline"] for one in page["pipelines"] + rest["pipelines"]] == ["lake", "shop.lake"]
    shop = server.send("GET", "/v0/pipelines?prefix=shop", **by("all")).ok()
    assert [one["pipeline"] for one in shop["pipelines"]] == ["shop.lake"]
