"""A browser's own EventSource and WebSocket against the server, reconnecting included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import COMMAND, Browser
from tests.http.streaming import RunningApp

pytestmark = pytest.mark.skipif(COMMAND is None, reason="needs chromium")

# Collects what an EventSource hears in window.seen, as [event, lastEventId, data].
LISTEN = """
window.seen = [];
window.opened = 0;
window.source = new EventSource(%s);
source.onopen = () => { window.opened += 1; };
for (const kind of ["record", "tombstone", "caught-up", "topic-deleted", "error", "closing"]) {
  source.addEventListener(kind, (event) => {
    if (event.data !== undefined) seen.push([kind, event.lastEventId, JSON.parse(event.data)]);
  });
}
"""
# Resolves to everything heard once a condition holds.
UNTIL = """
new Promise((resolve) => {
  const look = () => (%s) ? resolve(JSON.stringify(seen)) : setTimeout(look, 10);
  look();
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path / "data", api_keys="secret", test_min_heartbeat_ms=100)
    yield app
    app.stop()


def seen(browser: Browser, condition: str) -> list[Any]:
    found: list[Any] = json.loads(browser.run(UNTIL % condition))
    return found


def test_an_event_source_reads_reconnects_and_misses_nothing(browser: Browser, app: RunningApp) -> None:
    key = {"Authorization": "Bearer secret"}

    def write(*values: Any) -> None:
        records = {"records": [{"data": value} for value in values]}
        assert app.call("POST", "/v0/topics/t", records, **key).status == 200

    app.call("PUT", "/v0/topics/t", {"cap_records": 4}, **key)
    write(*range(6))
    watch = {"topics": {"t": {}}, "heartbeat_ms": 100}
    url = app.call("POST", "/v0/watch", watch, **key).json["stream_url"]
    host, port = app.address
    # Any page of the server will do: the stream then comes from the same origin.
    browser.open(f"http://{host}:{port}/v0/health")
    browser.run(LISTEN % json.dumps(f"{url}?token=secret"))
    told = seen(browser, "seen.length >= 3")
    assert [event for event, _, _ in told] == ["tombstone", "record", "caught-up"]
    assert told[0][2]["reason"] == "from_seq_too_old"
    assert [record["$seq"] for record in told[1][2]["records"]] == [3, 4, 5, 6]
    assert told[1][1] == told[2][1] == "eyJ0Ijo2fQ"
    write("live")
    told = seen(browser, "seen.length >= 5")
    assert told[3][2]["records"][0]["data"] == "live"
    # The connection breaks; the browser comes back by itself and says how far it got.
    app.inside(lambda: [stream._held.abort() for stream in app.app.service.streams.open])
    write("meanwhile")
    told = seen(browser, "opened == 2 && seen.length >= 7")
    assert [record["data"] for event, _, body in told if event == "record" for record in body["records"]] == [
        *range(2, 6),
        "live",
        "meanwhile",
    ]
    app.call("DELETE", "/v0/topics/t", **key)
    told = seen(browser, "seen.at(-1)[0] == 'topic-deleted'")
    assert told[-1][2] == {"topic": "t", "head_seq": 8, "reason": "deleted"}
    browser.run("source.close()")


def test_an_event_source_tails_topics_without_a_session(browser: Browser, tmp_path: Path) -> None:
    app = RunningApp(tmp_path / "open")
    try:
        host, port = app.address
        browser.open(f"http://{host}:{port}/v0/health")
        app.write("shop.a", 1, 2)
        browser.run(LISTEN % json.dumps("/v0/tail?topic=shop.*@-1"))
        assert [event for event, _, _ in seen(browser, "seen.length >= 2")] == ["record", "caught-up"]
        app.inside(lambda: [stream._held.abort() for stream in app.app.service.streams.open])
        app.write("shop.b", "meanwhile")
        app.write("shop.a", 3)
        told = seen(browser, "opened == 2 && seen.filter((one) => one[0] == 'record').length >= 3")
        found = {body["topic"]: body["records"] for event, _, body in told[2:] if event == "record"}
        assert {name: [r["data"] for r in records] for name, records in found.items()} == {
            "shop.a": [3],
            "shop.b": ["meanwhile"],
        }
        # What we have to say at the end is not taken for the browser's own errors.
        app.inside(app.app.service.streams.shut_down)
        told = seen(browser, "seen.at(-1)[0] == 'closing'")
        assert told[-1][2]["code"] == "server_shutting_down"
        browser.run("source.close()")
    finally:
        app.stop()


def test_a_browser_speaks_websocket(browser: Browser, tmp_path: Path) -> None:
    app = RunningApp(tmp_path / "open")
    try:
        host, port = app.address
        browser.open(f"http://{host}:{port}/v0/health")
        browser.run(
            """
            window.seen = [];
            window.socket = new WebSocket(`ws://${location.host}/v0/ws`);
            socket.onmessage = (message) => seen.push(JSON.parse(message.data));
            socket.onclose = (event) => seen.push({op: "closed", code: event.code});
            new Promise((resolve) => { socket.onopen = () => resolve(true); })
            """
        )
        publish = {"op": "publish", "request_id": 1, "topic": "t", "records": [{"data": "grüße"}]}
        browser.run(f"socket.send(JSON.stringify({json.dumps(publish)}))")
        assert seen(browser, "seen.length >= 1")[0]["op"] == "ack"
        browser.run("""socket.send('{"op":"subscribe","topic":"t"}')""")
        told = seen(browser, "seen.length >= 4")
        assert [message["op"] for message in told[1:]] == ["subscribed", "record", "caught_up"]
        assert told[2]["records"][0]["data"] == "grüße"
        browser.run("socket.close(1000)")
        assert seen(browser, "seen.length >= 5")[-1] == {"op": "closed", "code": 1000}
    finally:
        app.stop()
