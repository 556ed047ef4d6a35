"""The path under which a proxy shows the server: requests with it and without it, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http.streaming import EventReader, RunningApp
from topics.core import ConfigError, Settings
from topics.http.admission.address import parse_base_path, without_base
from topics.http.app import keys_of
from topics.http.console.routes import FILES

Start = Callable[..., RunningApp]
BASE = "/shop/topics"


@pytest.mark.parametrize(
    ("text", "base"),
    [("", ""), ("/", ""), ("/a", "/a"), ("/a/", "/a"), (" /a/b.c ", "/a/b.c"), ("/v01", "/v01")],
)
def test_one_way_of_writing_it(text: str, base: str) -> None:
    assert parse_base_path(text) == base


@pytest.mark.parametrize(
    "text",
    ["a", "//a", "/a//b", "/a/..", "/.", "/a b", "/a?b", "/a%2fb", "/ä", "/v0", "/v0/x", "/healthz", "/a\nb"],
)
def test_what_is_no_such_path_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_BASE_PATH"):
        keys_of(Settings(base_path=text))


def test_only_whole_parts_of_a_path_are_taken_off() -> None:
    assert without_base(b"/a/v0/tail?topic=/a/x", b"/a") == b"/v0/tail?topic=/a/x"
    assert without_base(b"/a/", b"/a") == b"/"
    assert without_base(b"/ab/v0", b"/a") == b"/ab/v0"
    assert without_base(b"/a", b"/a") == b"/a"
    assert without_base(b"/v0", b"") == b"/v0"


def test_requests_come_with_the_path_or_without_it(start: Start) -> None:
    app = start(base_path=f"{BASE}/")
    for base in ("", BASE):
        written = app.call("POST", f"{base}/v0/topics/t", {"records": [{"data": 1}]}, **JSON)
        assert written.status in (200, 201)
        for path in ("/healthz", "/readyz", "/v0/ready", *FILES):
            assert app.call("GET", base + path).status == 200
    page = app.call("POST", f"{BASE}/v0/topics/t/diff", {}, **JSON).json
    assert [record["$seq"] for record in page["records"]] == [1, 2]
    # Not twice, and not another path that begins like it.
    for path in (f"{BASE}{BASE}/v0/health", "/shop/v0/health", f"{BASE}x/v0/health"):
        assert app.call("GET", path).status == 404


def test_the_server_says_its_addresses_with_the_path(start: Start) -> None:
    app = start(base_path=BASE)
    assert app.call("GET", "/v0/openapi.json").json["servers"] == [{"url": BASE}]
    app.write("t", 1)
    url = app.watch({"t": {"from_seq": 0}})["stream_url"]
    assert url.startswith(f"{BASE}/v0/watch/")
    reader = EventReader(app.address, url)
    try:
        assert [record["$seq"] for record in reader.next("record").data["records"]] == [1]
    finally:
        reader.close()
    moved = app.call("GET", BASE)
    assert (moved.status, moved.headers["location"]) == (308, f"{BASE}/")


@pytest.mark.parametrize("asked", ["", BASE])
@pytest.mark.parametrize("opened", ["", BASE])
def test_a_ticket_opens_the_stream_by_either_address(start: Start, asked: str, opened: str) -> None:
    app = start(base_path=BASE, api_keys="secret")
    key = {"Authorization": "Bearer secret", **JSON}
    assert app.call("POST", f"{BASE}/v0/topics/t", {"records": [{"data": 1}]}, **key).status == 201
    body = {"path": f"{asked}/v0/tail?topic=t@0"}
    ticket = app.call("POST", "/v0/tickets", body, **key).json["ticket"]
    path = f"{opened}/v0/tail?topic=t@0&ticket={ticket}"
    reader = EventReader(app.address, path)
    try:
        assert [record["$seq"] for record in reader.next("record").data["records"]] == [1]
    finally:
        reader.close()
    assert app.call("GET", path).status == 401


JSON = {"Content-Type": "application/json"}
