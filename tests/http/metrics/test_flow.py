"""Consumers and routers that are behind, named only to those who may know them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http.metrics.scraping import scrape, send, text
from tests.http.streaming import RunningApp
from topics.http.metrics import figures as flow

Start = Callable[..., RunningApp]


def put_cursor(app: RunningApp, topic: str, consumer: str, seq: int) -> None:
    send(app, "PUT", f"/v0/topics/{topic}/cursors/{consumer}", {"seq": seq})


def test_consumers_that_are_behind(app: RunningApp) -> None:
    app.write("a", *range(10))
    put_cursor(app, "a", "near", 9)
    put_cursor(app, "a", "far", 2)
    found = scrape(app)
    assert found['topics_consumer_lag{topic="a",consumer="near"}'] == 1
    assert found['topics_consumer_lag{topic="a",consumer="far"}'] == 8
    assert (found["topics_consumers"], found["topics_consumer_lag_max"]) == (2, 8)
    send(app, "DELETE", "/v0/topics/a")
    found = scrape(app)
    assert (found["topics_consumers"], found["topics_consumers_without_topic"]) == (0, 2)


def test_only_the_furthest_are_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_NAMED", 3)
    app = start()
    app.write("a", *range(10))
    for number in range(8):
        put_cursor(app, "a", f"c{number}", number)
    named = {s: v for s, v in scrape(app).items() if s.startswith("topics_consumer_lag{")}
    assert sorted(named.values()) == [8, 9, 10]
    assert scrape(app)["topics_consumers"] == 8


def test_names_are_shown_only_to_those_who_may_know_them(start: Start) -> None:
    app = start(api_keys="all,some:read:mine-")
    every, some = {"Authorization": "Bearer all"}, {"Authorization": "Bearer some"}
    for topic in ("mine-a", "theirs-a"):
        send(app, "POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, **every)
        send(app, "PUT", f"/v0/topics/{topic}/cursors/c", {"seq": 0}, **every)
        send(app, "PUT", f"/v0/routers/{topic}", {"source": topic, "dest": topic + "-copy"}, **every)
    assert 'topics_consumer_lag{topic="theirs-a",consumer="c"}' in scrape(app, **every)
    assert "theirs" in text(app, **every)
    shown = text(app, **some)
    assert 'topics_consumer_lag{topic="mine-a",consumer="c"}' in shown
    assert 'topics_router_lag{router="mine-a"}' in shown
    assert "theirs" not in shown
    as_json = app.call("GET", "/v0/metrics", Accept="application/json", **some).body.decode()
    assert "mine-a" in as_json
    assert "theirs" not in as_json
    assert scrape(app, **some)["topics_consumers"] == 2


def test_routers_that_are_behind_or_blocked(app: RunningApp) -> None:
    send(app, "PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    send(app, "PUT", "/v0/routers/r", {"source": "a", "dest": "full"})
    app.write("a", 1, 2, 3)
    app.call("POST", "/v0/topics/full/diff", {})
    found = scrape(app)
    assert found["topics_routers_blocked"] == 1
    assert found['topics_router_lag{router="r"}'] == found["topics_router_lag_max"] == 2
