"""Watch sessions over real sockets: requests, frames, cursors, heartbeats, limits, and clean endings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.streaming import EventReader, RunningApp
from tests.support import eventually
from topics.core.clock import ManualClock
from topics.flow.watch.sessions import encode_id
from topics.http import stream as outlet

Start = Callable[..., RunningApp]


@pytest.fixture
def app(start: Start) -> RunningApp:
    return start(test_min_heartbeat_ms=50)


def gist(reader: EventReader, until: str = "caught-up") -> list[Any]:
    """Event and essence of everything up to the next frame of a kind."""
    found: list[Any] = []
    for frame in reader.until(until):
        if frame.event == "record":
            found.append(frame.seqs)
        elif frame.event == "tombstone":
            found.append((frame.data["gap_from"], frame.data["gap_to"], frame.data["reason"]))
        else:
            found.append(frame.event)
    return found


# --- registering ----------------------------------------------------------------------------------------


# --- frames ---------------------------------------------------------------------------------------------


def test_the_wire_format_to_the_byte(app: RunningApp) -> None:
    app.write("lantern", {"data": {"a": [1, "x\ny"]}, "tag": "t"})
    reader = app.stream("lantern")
    assert reader.headers["content-type"] == "text/event-stream"
    assert reader.headers["cache-control"] == "no-store"
    assert reader.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in reader.headers
    assert reader.wire.read_chunk().startswith(b"retry: 2000\n\n")
    text = reader.wire.read_chunk().decode()
    ts = json.loads(text.split("\n")[2].removeprefix("data: "))["records"][0]["$ts"]
    cursor = encode_id({"lantern": 1}, {}).decode()
    assert (
        text
        == (
            f"id: {cursor}\n"
            "event: record\n"
            'data: {"topic":"lantern","records":[{"$seq":1,"$ts":%d,"data":{"a":[1,"x\\ny"]}}],'
            '"from_seq":0,"to_seq":1,"head_seq":1}\n'
            "\n"
            f"id: {cursor}\n"
            "event: caught-up\n"
            'data: {"topic":"lantern","head_seq":1}\n'
            "\n"
        )
        % ts
    )


def test_the_cursor_covers_every_topic_of_the_session(app: RunningApp) -> None:
    app.write("lantern", *range(44))
    app.write("tides", *range(7))
    reader = app.stream({"lantern": {"from_seq": 41}, "tides": {"tail": True}})
    frames = reader.until("caught-up") + reader.until("caught-up")
    record = next(frame for frame in frames if frame.event == "record")
    assert record.id == "eyJsYW50ZXJuIjo0NCwidGlkZXMiOjd9"
    assert all(set(frame.cursors) == {"lantern", "tides"} for frame in frames)
    app.write("tides", 8)
    assert reader.next("record").cursors == {"lantern": 44, "tides": 8}


def test_sessions_that_share_a_topic_keep_their_own_cursors(app: RunningApp) -> None:
    for name in ("a", "b", "c"):
        app.call("PUT", f"/v0/topics/{name}")
    app.write("c", 1, 2)
    readers = [
        app.stream({"a": {}}),
        app.stream({"a": {}, "b": {}}),
        app.stream({"a": {}, "c": {"tail": True}}),
    ]
    for reader, topics in zip(readers, (1, 2, 2), strict=True):
        for _ in range(topics):
            reader.next("caught-up")
    app.write("a", "shared")
    frames = [reader.next("record") for reader in readers]
    assert [frame.cursors for frame in frames] == [{"a": 1}, {"a": 1, "b": 0}, {"a": 1, "c": 2}]
    assert frames[0].data == frames[1].data == frames[2].data


def test_resuming_behind_a_tombstone_repeats_no_gap(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/capped", {"cap_records": 4})
    app.write("capped", *range(8))
    body = app.watch("capped")
    first = app.events(body["wid"])
    gap = first.next("tombstone")
    first.close()
    again = app.events(body["wid"], **{"Last-Event-ID": str(gap.id)})
    assert gist(again) == [[5, 6, 7, 8], "caught-up"]


# --- coming back ----------------------------------------------------------------------------------------


def test_the_session_remembers_and_the_client_may_rewind(app: RunningApp) -> None:
    app.write("a", *range(5))
    app.write("b", *range(5))
    wid = app.watch({"a": {}, "b": {}})["wid"]
    first = app.events(wid)
    first.until("caught-up"), first.until("caught-up")
    first.close()
    app.write("a", 6)
    second = app.events(wid)
    frames = second.until("caught-up") + second.until("caught-up")
    assert [frame.seqs for frame in frames if frame.event == "record"] == [[6]]
    second.close()
    behind = encode_id({"a": 3, "b": 99, "stranger": 1}, {}).decode()
    third = app.events(wid, **{"Last-Event-ID": behind})
    frames = third.until("caught-up") + third.until("caught-up")
    assert [frame.seqs for frame in frames if frame.event == "record"] == [[4, 5, 6]]
    third.close()
    fourth = app.events(wid, **{"Last-Event-ID": "%%%"})
    frames = fourth.until("caught-up") + fourth.until("caught-up")
    assert not [frame for frame in frames if frame.event == "record"]


def test_two_streams_on_one_session(app: RunningApp) -> None:
    app.write("t", 1)
    wid = app.watch("t")["wid"]
    first = app.events(wid)
    assert gist(first) == [[1], "caught-up"]
    second = app.events(wid)
    assert gist(second) == ["caught-up"]
    app.write("t", 2)
    # A connection that has silently died must not swallow what belongs to the new one.
    assert gist(second) == [[2], "caught-up"]
    second.close()
    first.close()
    eventually(lambda: app.footprint()["streams"] == 0)
    assert gist(app.events(wid)) == ["caught-up"]


def test_a_session_without_any_topic_ends_at_once(app: RunningApp) -> None:
    body = app.watch("ghost", "?lenient=1")
    assert body["topics"] == {}
    reader = app.events(body["wid"])
    assert reader.rest() == []


def test_a_session_of_deleted_topics_only(app: RunningApp) -> None:
    app.write("t", 1, 2, 3)
    wid = app.watch("t")["wid"]
    app.call("DELETE", "/v0/topics/t")
    frames = app.events(wid).rest()
    assert [(frame.event, frame.data["head_seq"]) for frame in frames] == [("topic-deleted", 3)]


# --- heartbeats and time --------------------------------------------------------------------------------


def test_heartbeats_are_clamped(start: Start) -> None:
    plain = start()
    plain.call("PUT", "/v0/topics/t")
    for asked, given in ((0, 1000), (1, 1000), (2500, 2500), (10**12, 60000)):
        wid = plain.watch("t", heartbeat_ms=asked)["wid"]
        assert plain.inside(lambda wid=wid: plain.app.watches.sessions.find(wid)).heartbeat_ms == given
    wid = plain.watch("t")["wid"]
    assert plain.inside(lambda: plain.app.watches.sessions.find(wid)).heartbeat_ms == 15000


def test_an_idle_session_is_forgotten(start: Start) -> None:
    clock = ManualClock()
    app = start(clock=clock)
    app.write("t", 1)
    wid = app.watch("t")["wid"]
    reader = app.events(wid)
    reader.until("caught-up")
    clock.advance(10_000_000)
    assert app.events(wid).status == 200
    reader.close()
    app.hang_up()
    eventually(lambda: app.footprint()["streams"] == 0)
    clock.advance(300_000)
    again = app.events(wid)
    assert again.status == 200
    app.hang_up()
    eventually(lambda: app.footprint()["streams"] == 0)
    clock.advance(300_001)
    assert (app.events(wid).status, app.events(wid).refusal.code) == (404, "not_found")


# --- who may ---------------------------------------------------------------------------------------------

KEYS = "one:r:a,two:r,writer:w,all"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_session_opens_for_the_key_that_made_it(start: Start) -> None:
    app = start(api_keys=KEYS)
    app.call("POST", "/v0/topics/a1", {"records": [{"data": 1}]}, **bearer("all"))
    answer = app.call("POST", "/v0/watch", {"topics": {"a1": {}}}, **bearer("one"))
    wid = answer.json["wid"]
    assert app.events(wid, **bearer("one")).next("record")
    assert app.events(wid, "?token=one").next("caught-up")
    for headers in ({}, bearer("two"), bearer("all"), bearer("nobody")):
        reader = app.events(wid, **headers)
        assert (reader.status, reader.refusal.code) == (401, "unauthorized")
        unknown = app.events("wid_AAAAAAAAAAAAAAAAAAAAAA", **headers)
        assert (unknown.status, unknown.refusal.code) == (404, "not_found")
    assert app.events(wid, "?token=two").status == 401


def test_scopes_and_prefixes(start: Start) -> None:
    app = start(api_keys=KEYS)
    for name in ("a1", "b1"):
        app.call("PUT", f"/v0/topics/{name}", {}, **bearer("all"))
    watch = {"topics": {"a1": {}}}
    assert app.call("POST", "/v0/watch", watch).status == 401
    assert app.call("POST", "/v0/watch?token=one", watch).status == 401
    assert app.call("POST", "/v0/watch", watch, **bearer("writer")).status == 403
    assert app.call("POST", "/v0/watch", watch, **bearer("one")).status == 200
    for name in ("b1", "ghost"):
        answer = app.call("POST", "/v0/watch?lenient=true", {"topics": {"a1": {}, name: {}}}, **bearer("one"))
        assert (answer.status, answer.code) == (403, "forbidden")
        assert answer.json["error"]["detail"] == {"topic": name}


# --- limits ----------------------------------------------------------------------------------------------


def test_sessions_are_limited(start: Start) -> None:
    app = start(max_watch_sessions=2)
    app.write("t", 1)
    app.watch("t"), app.watch("t")
    answer = app.call("POST", "/v0/watch", {"topics": {"t": {}}})
    assert (answer.status, answer.code) == (429, "throttled")
    assert answer.json["error"]["detail"] == {"limit": "max_watch_sessions", "max": 2}
    assert answer.headers["retry-after"] == "1"


def test_streams_are_limited_and_places_come_back(start: Start) -> None:
    app = start(max_sse_connections=2)
    app.write("t", 1)
    wid = app.watch("t")["wid"]
    first, second = app.events(wid), app.events(wid)
    refused = app.events(wid)
    assert (refused.status, refused.refusal.code) == (429, "throttled")
    assert refused.refusal.json["error"]["detail"] == {"limit": "max_sse_connections", "max": 2}
    assert refused.headers["retry-after"] == "1"
    assert app.call("GET", "/v0/metrics", Accept="application/json").json["sse_connections"] == 2
    first.close()
    eventually(lambda: app.footprint()["slots"] == 1)
    assert app.events(wid).status == 200
    second.close()


def test_streams_are_limited_for_each_key(start: Start) -> None:
    app = start(api_keys="one,two", max_sse_connections_per_key=1)
    app.call("PUT", "/v0/topics/t", {}, **bearer("one"))
    wids = {}
    for secret in ("one", "two"):
        answer = app.call("POST", "/v0/watch", {"topics": {"t": {}}}, **bearer(secret))
        wids[secret] = answer.json["wid"]
        assert app.events(wids[secret], **bearer(secret)).status == 200
    refused = app.events(wids["one"], **bearer("one"))
    assert refused.refusal.json["error"]["detail"] == {"limit": "max_sse_connections_per_key", "max": 1}


# --- pressure and endings ---------------------------------------------------------------------------------


def stalled(app: RunningApp, wid: str) -> EventReader:
    """A client with a tiny receive buffer that reads nothing but the head."""
    reader = EventReader.__new__(EventReader)
    reader.wire = app.slow_wire(f"/v0/watch/{wid}")
    reader.status, reader.headers = reader.wire.read_head()
    reader._text = b""
    return reader


def flood(app: RunningApp, topic: str, count: int) -> None:
    for _ in range(count):
        app.write(topic, *["x" * 10_000 for _ in range(40)])


def overwhelmed(app: RunningApp) -> EventReader:
    """A client that reads nothing of far too much, and soon loses the server's patience."""
    app.app.watches.patience_s = 0.1
    app.call("PUT", "/v0/topics/t")
    slow = stalled(app, app.watch("t")["wid"])
    flood(app, "t", 40)
    return slow


def test_a_client_that_does_not_read_delays_nobody_and_catches_up(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/t")
    slow = stalled(app, app.watch("t")["wid"])
    quick = app.stream("t")
    quick.next("caught-up")
    flood(app, "t", 40)
    seen: list[int] = []
    while len(seen) < 1600:
        frame = quick.frame()
        assert frame is not None
        seen += frame.seqs if frame.event == "record" else []
    assert seen == list(range(1, 1601))
    eventually(lambda: any(stream.stalled for stream in app.app.watches.streams))
    stream = next(stream for stream in app.app.watches.streams if stream.stalled)
    # Bounded: one mark and one frame, not the sixteen megabytes it owes.
    assert app.inside(lambda: stream._held.buffered()) < 2 << 20
    late: list[int] = []
    while len(late) < 1600:
        frame = slow.frame()
        assert frame is not None
        late += frame.seqs if frame.event == "record" else []
    assert late == seen
    slow.close()


def test_a_stalled_client_of_a_trimming_topic_is_told_what_it_lost(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/t", {"cap_records": 50})
    slow = stalled(app, app.watch("t")["wid"])
    flood(app, "t", 40)
    eventually(lambda: any(stream.stalled for stream in app.app.watches.streams))
    got: list[int] = []
    lost = 0
    while not got or got[-1] < 1600:
        frame = slow.frame()
        assert frame is not None
        if frame.event == "tombstone":
            assert frame.data["reason"] == "cap"
            lost += frame.data["gap_to"] - frame.data["gap_from"] + 1
        elif frame.event == "record":
            got += frame.seqs
    assert lost > 0
    assert lost + len(got) == 1600
    slow.close()


def test_a_client_that_never_reads_is_cut_off_with_an_error(
    app: RunningApp,
) -> None:
    app.app.watches.patience_s = 0.2
    app.call("PUT", "/v0/topics/t")
    wid = app.watch("t")["wid"]
    slow = stalled(app, wid)
    flood(app, "t", 40)
    eventually(lambda: app.footprint()["feeds"] == 0)
    frames = slow.rest()
    error = frames[-1]
    assert (error.event, error.id) == ("error", None)
    assert error.data["code"] == 429
    assert error.data["topics"] == ["t"]
    assert error.data["retry_after_ms"] > 0
    assert error.data["error"]
    eventually(lambda: app.footprint()["slots"] == 0)
    # The session goes on where the frames ended.
    last = max(frame.seqs[-1] for frame in frames if frame.event == "record")
    again = app.events(wid)
    assert again.next("record").seqs[0] == last + 1


def test_a_client_that_ignores_even_that_is_torn_down(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "EXPLANATION_S", 0.2)
    slow = overwhelmed(app)
    eventually(lambda: app.footprint()["slots"] == 0)
    assert app.footprint()["connections"] == 0
    slow.close()


def test_a_client_that_reads_late_still_learns_why_it_was_cut_off(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "FAREWELL_S", 0.0)
    slow = overwhelmed(app)
    eventually(lambda: app.footprint()["feeds"] == 0)
    # Answered after the farewell would have been over.
    app.call("GET", "/v0/topics/t")
    assert slow.rest()[-1].event == "error"


def test_shutdown_does_not_wait_for_a_client_that_was_cut_off(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "FAREWELL_S", 0.1)
    monkeypatch.setattr(app.app.server, "_drain_s", 60.0)
    slow = overwhelmed(app)
    eventually(lambda: app.footprint()["feeds"] == 0)
    app.begin_stop()
    app.thread.join(30)
    assert not app.thread.is_alive(), "it waits for a client that does not read"
    slow.close()


def test_http_1_0_clients_get_the_bare_stream(app: RunningApp) -> None:
    app.write("t", 1)
    wid = app.watch("t")["wid"]
    wire = app.wire()
    wire.send(f"GET /v0/watch/{wid} HTTP/1.0\r\n\r\n".encode())
    assert wire.read_head()[0] == 200
    assert wire.file.readline() == b"retry: 2000\n"
    assert wire.file.readline() == b"\n"
    assert wire.file.readline().startswith(b"id: ")
