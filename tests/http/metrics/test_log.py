"""What leaves the log and who is told; what is sealed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.http.metrics.scraping import scrape, send
from tests.http.streaming import RunningApp
from topics.core.clock import ManualClock

Start = Callable[..., RunningApp]


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
