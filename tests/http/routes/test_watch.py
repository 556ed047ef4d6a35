"""Watch sessions over real sockets: requests, frames, cursors, heartbeats, limits, and clean endings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http.streaming import EventReader, RunningApp
from tests.support import eventually
from topics.http import stream as outlet

Start = Callable[..., RunningApp]


@pytest.fixture
def app(start: Start) -> RunningApp:
    return start(test_min_heartbeat_ms=50)


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
    app.app.service.streams.patience_s = 0.1
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
    eventually(lambda: any(stream.stalled for stream in app.app.service.streams.open))
    stream = next(stream for stream in app.app.service.streams.open if stream.stalled)
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
    eventually(lambda: any(stream.stalled for stream in app.app.service.streams.open))
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
    app.app.service.streams.patience_s = 0.2
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
