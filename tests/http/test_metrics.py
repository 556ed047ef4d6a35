"""Metrics as text and as JSON, of a real server with real topics."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http.streaming import RunningApp
from tests.support import Answer, raw_request
from topics.core.clock import ManualClock
from topics.http.metrics import figures as flow
from topics.http.metrics.figures import labels

Start = Callable[..., RunningApp]


def text(app: RunningApp, **headers: str) -> str:
    return app.call("GET", "/v0/metrics", **headers).body.decode()


def scrape(app: RunningApp, **headers: str) -> dict[str, float]:
    lines = [line for line in text(app, **headers).splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def send(app: RunningApp, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    answer = app.call(method, path, body, **headers)
    assert answer.status < 300, answer.body
    return answer


# --- text and JSON -------------------------------------------------------------------------------------


def test_label_values_are_escaped() -> None:
    assert labels(topic='a\\b"c\nd') == r'{topic="a\\b\"c\nd"}'


def test_prometheus_can_read_it(app: RunningApp) -> None:
    app.write("a", 1)
    send(app, "PUT", "/v0/topics/jobs", {"type": "queue"})
    send(app, "PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    send(app, "PUT", "/v0/topics/a/cursors/c", {"seq": 0})
    app.call("GET", "/nowhere")
    body = text(app)
    families = list(text_string_to_metric_families(body))
    assert (
        len(families) == len(re.findall(r"^# TYPE ", body, re.M)) == len(re.findall(r"^# HELP ", body, re.M))
    )
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for family in families:
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        assert family.samples, f"{family.name} has no series"
        for sample in family.samples:
            series = (sample.name, tuple(sorted(sample.labels.items())))
            assert series not in seen
            seen.add(series)
            assert sample.value >= 0


# --- requests ------------------------------------------------------------------------------------------


def test_durations_by_route_method_and_status(app: RunningApp) -> None:
    app.write("a", 1)
    app.write("b", 1)
    app.call("POST", "/v0/topics/a", {"records": 1})
    app.call("POST", "/v0/topics/none/diff", {})
    found = scrape(app)
    name = "topics_http_request_duration_seconds"
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] == 2
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic",status="4xx"}}'] == 1
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic/diff",status="4xx"}}'] == 1
    assert found[f'{name}_sum{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] > 0
    bucket = f'{name}_bucket{{method="POST",route="/v0/topics/:topic",status="2xx",le="+Inf"}}'
    assert found[bucket] == 2
    assert not any('status="5xx"' in series for series in found)
    assert found['topics_http_errors_total{code="invalid_request"}'] == 1
    assert found['topics_http_errors_total{code="topic_not_found"}'] == 1
    # The one that is asking.
    assert found["topics_http_requests_in_flight"] == found["topics_http_connections"] == 1
    assert found["topics_http_connections_accepted_total"] == 5


def test_writes_that_are_committed_together_are_all_counted(app: RunningApp) -> None:
    app.write("a", 1)
    wires = [app.wire() for _ in range(5)]
    for wire in wires:
        wire.send(raw_request("POST", "/v0/topics/a", b'{"records":[{"data":2}]}'))
    assert [wire.read().status for wire in wires] == [200] * 5
    found = scrape(app)
    name = "topics_http_request_duration_seconds_count"
    assert found[f'{name}{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] == 6


def test_who_holds_the_loop(app: RunningApp) -> None:
    """Each request that a handler answers at once, and each step of those that take several."""
    name = "topics_loop_stall_seconds"
    app.write("t", 1)
    before = scrape(app)
    assert before[f'{name}{{method="any",route="none"}}'] >= 0
    routes = {route.template: route for route in app.app.server.routes if route.method == "GET"}
    # Answered by its handler at once, while the two below are taken in steps.
    app.call("GET", "/v0/topics/t")
    assert 0 < scrape(app)[f'{name}{{method="GET",route="/v0/topics/:topic"}}'] < 60
    app.app.node.upkeep.holds.note(6.0)
    assert scrape(app)[f'{name}{{method="any",route="upkeep"}}'] == 6
    routes["/v0/topics/:topic"].holds.note(7.0)
    routes["/v0/topics/:topic"].holds.note(5.0)
    assert scrape(app)[f'{name}{{method="GET",route="/v0/topics/:topic"}}'] == 7
    assert 0 < before[f'{name}{{method="POST",route="/v0/topics/:topic"}}'] < 60
    assert 0 < scrape(app)[f'{name}{{method="GET",route="/v0/metrics"}}'] < 60


# --- routers and cursors -------------------------------------------------------------------------------


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


# --- records -------------------------------------------------------------------------------------------


def test_evictions_by_cause_and_the_tombstones_that_tell_of_them(start: Start) -> None:
    clock = ManualClock(1_000_000)
    app = start(clock=clock)
    send(app, "PUT", "/v0/topics/capped", {"cap_records": 2})
    send(app, "PUT", "/v0/topics/aging", {"ttl_ms": 1000})
    app.write("capped", 111, 222, 333, 444, 555)
    app.write("aging", 1, 2)
    found = scrape(app)
    assert found['topics_evicted_records_total{cause="cap"}'] == 3
    assert found['topics_evicted_bytes_total{cause="cap"}'] == 9
    assert found['topics_evicted_records_total{cause="ttl"}'] == 0
    assert sum(v for s, v in found.items() if s.startswith("topics_tombstones_served")) == 0
    clock.advance(5_000)
    found = scrape(app)
    assert found['topics_evicted_records_total{cause="ttl"}'] == 2
    assert found['topics_evicted_bytes_total{cause="ttl"}'] == 2

    for topic, cursor in (("capped", 0), ("capped", 1), ("capped", 4), ("aging", 0), ("capped", 99)):
        send(app, "POST", f"/v0/topics/{topic}/diff", {"from_seq": cursor})
    reader = app.stream({"capped": {"from_seq": 0}, "aging": {"from_seq": 2}})
    reader.until("tombstone")
    send(app, "POST", "/v0/topics/capped/scan", {})
    found = scrape(app)
    assert found['topics_tombstones_served_total{reason="cap"}'] == 2 + 1 + 1
    assert found['topics_tombstones_served_total{reason="ttl"}'] == 1
    assert found['topics_tombstones_served_total{reason="recreated"}'] == 1
    assert found["topics_deleted_records_total"] == 0


def test_records_read_by_the_way_they_took(app: RunningApp) -> None:
    app.write("a", 1, 2, 3)
    send(app, "POST", "/v0/topics/a/diff", {"from_seq": 1})
    for _ in range(2):
        app.stream({"a": {"from_seq": 0}}).until("caught-up")
    send(app, "POST", "/v0/topics/a/scan", {"from_seq": 2})
    found = scrape(app)
    assert found['topics_records_read_total{via="diff"}'] == 2
    assert found['topics_records_read_total{via="stream"}'] == 6
    assert found['topics_records_read_total{via="scan"}'] == 1


def test_what_recovery_repeats_is_not_counted_again(app: RunningApp, tmp_path: Path) -> None:
    send(app, "PUT", "/v0/topics/capped", {"cap_records": 1})
    app.write("capped", 1, 2, 3)
    send(app, "POST", "/v0/topics/capped/delete", {"before_seq": 4})
    # As a crash would leave it: what happened is in the journal, and no checkpoint knows of it.
    shutil.copytree(tmp_path / "data-0", tmp_path / "crashed")
    again = RunningApp(tmp_path / "crashed")
    found = scrape(again)
    again.stop()
    assert found['topics_topic_head_seq{topic="capped"}'] == 3
    assert found['topics_evicted_records_total{cause="cap"}'] == found["topics_deleted_records_total"] == 0


def test_what_is_not_sealed_yet(app: RunningApp) -> None:
    app.write("a", *range(25))
    found = scrape(app)
    assert found["topics_unsealed_bytes"] > 25
    assert found["topics_wal_retained_bytes"] > 25
    assert found["topics_seal_runs_total"] == 0


def test_sealing_and_reading_what_is_sealed(start: Start, wait_until: Callable[..., None]) -> None:
    app = start(segment_max_events=10, hot_bytes=1)
    for _ in range(3):
        app.write("a", *range(10))
    wait_until(lambda: scrape(app)["topics_seal_runs_total"] == 3)
    found = scrape(app)
    assert found["topics_unsealed_bytes"] == 0
    assert found["topics_seal_bytes_total"] > 30
    assert found['topics_segments{tier="hot"}'] >= 1
    assert found['topics_segments{tier="cold"}'] == 0
    assert found["topics_hot_bytes"] == 0
    before = found["topics_segment_cache_misses_total"], found["topics_segment_cache_hits_total"]
    for _ in range(2):
        assert len(send(app, "POST", "/v0/topics/a/diff", {}).json["records"]) == 30
    wait_until(lambda: scrape(app)["topics_seal_passes_total"] >= 1)
    found = scrape(app)
    assert found["topics_segment_cache_misses_total"] > before[0]
    assert found["topics_segment_cache_hits_total"] > before[1]
