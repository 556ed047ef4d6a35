"""The console's files: there without a key and while recovering, with headers that let nothing else in."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

from tests.http.streaming import RunningApp
from topics.http.console.routes import BUILT, FILES

Start = Callable[..., RunningApp]
BUDGET = 150_000


def test_it_needs_no_key_and_runs_nothing_inline(start: Start) -> None:
    app = start(api_keys="secret")
    for path, (name, content_type) in FILES.items():
        answer = app.call("GET", path)
        assert answer.status == 200
        assert answer.body == (BUILT / name).read_bytes()
        assert answer.headers["content-type"] == content_type.decode()
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self';")
    page = app.call("GET", "/?from=a-link").body.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|style=|https?://|//", page)
    assert app.call("GET", "/v0/overview").status == 401


def test_a_browser_that_has_it_is_not_sent_it_again(start: Start) -> None:
    app = start()
    mark = app.call("GET", "/console.js").headers["etag"]
    again = app.call("GET", "/console.js", **{"If-None-Match": mark})
    assert (again.status, again.body) == (304, b"")


def test_it_can_be_switched_off(start: Start) -> None:
    app = start(console=False)
    for path in FILES:
        answer = app.call("GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


def test_script_and_style_are_small() -> None:
    built = (BUILT / "console.js").read_bytes() + (BUILT / "console.css").read_bytes()
    assert len(gzip.compress(built)) <= BUDGET
