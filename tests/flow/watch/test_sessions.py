"""Sessions: how long they live, how many there may be, and where a new stream starts."""

from __future__ import annotations

import re

import pytest

from topics.core.clock import ManualClock
from topics.core.errors import ApiError
from topics.flow.watch.delivery import WatchOptions
from topics.flow.watch.sessions import Known, StreamPositions, WatchSession, WatchSessions, encode_id

OPTIONS = WatchOptions(limit=256, max_bytes=1 << 20)


def make(sessions: WatchSessions, **cursors: int) -> WatchSession:
    places = StreamPositions()
    for name, seq in cursors.items():
        places.put(name, seq, 1, first_life=True)
    return sessions.create(None, OPTIONS, 15_000, places, {name: Known(1, 0) for name in cursors})


def started(session: WatchSession, last_event_id: bytes | None) -> dict[str, int]:
    """Where a stream begins that is opened now, while every topic is in its first life."""
    return session.start(last_event_id, lambda name: 1).seqs


def test_wids_are_long_and_random() -> None:
    sessions = WatchSessions(0, lambda: 0)
    wids = {make(sessions, a=0).wid for _ in range(50)}
    assert len(wids) == 50
    assert all(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", wid) for wid in wids)


def test_the_client_can_rewind_but_never_advance() -> None:
    session = make(WatchSessions(0, lambda: 0), a=5, b=5)
    last = encode_id({"a": 3, "b": 9, "stranger": 1}, {})
    assert started(session, last) == {"a": 3, "b": 5}
    # The rewound position is the stored one from now on.
    assert started(session, None) == {"a": 3, "b": 5}
    assert started(session, b"nonsense") == {"a": 3, "b": 5}


def test_an_idle_session_is_forgotten_after_its_time() -> None:
    clock = ManualClock()
    sessions = WatchSessions(0, clock.now_ms)
    first = make(sessions, a=0)
    clock.advance(200_000)
    second = make(sessions, a=0)
    clock.advance(100_000)
    assert sessions.find(first.wid) is first
    clock.advance(1)
    assert sessions.find(first.wid) is None
    assert sessions.find(second.wid) is second
    assert len(sessions) == 1


def test_a_session_with_a_stream_stays_and_idles_from_its_end() -> None:
    clock = ManualClock()
    sessions = WatchSessions(0, clock.now_ms)
    session = make(sessions, a=0)
    sessions.stream_opened(session)
    sessions.stream_opened(session)
    clock.advance(10_000_000)
    sessions.stream_ended(session)
    clock.advance(10_000_000)
    assert sessions.find(session.wid) is session
    sessions.stream_ended(session)
    clock.advance(300_000)
    assert sessions.find(session.wid) is session
    clock.advance(1)
    assert sessions.find(session.wid) is None


def test_the_limit_counts_living_sessions_only() -> None:
    clock = ManualClock()
    sessions = WatchSessions(2, clock.now_ms)
    make(sessions, a=0), make(sessions, a=0)
    with pytest.raises(ApiError) as refused:
        make(sessions, a=0)
    assert refused.value.code == "throttled"
    assert refused.value.detail == {"limit": "max_watch_sessions", "max": 2}
    clock.advance(300_001)
    assert make(sessions, a=0)


def test_what_an_older_stream_learned_does_not_replace_what_a_newer_one_did() -> None:
    session = make(WatchSessions(0, lambda: 0), a=0)
    session.note("a", 7, 30)
    session.note("a", 3, 90)
    assert (session.known["a"].epoch, session.known["a"].head) == (7, 30)
    # In the same life the head that was seen last counts.
    session.note("a", 7, 31)
    assert (session.known["a"].epoch, session.known["a"].head) == (7, 31)
