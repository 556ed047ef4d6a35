"""Metrics: every series by its name, as text and as JSON, with figures that follow what happens."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, session
from tests.support import eventually

GAUGES = {
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
}
COUNTERS = {
    "topics_uptime_ms",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_submit_full_total",
}
BUCKETS = ["50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"]
JSON_KEYS = {
    "topics",
    "topics_ephemeral",
    "topics_memory",
    "topics_disk",
    "topics_fsync",
    "routers",
    "records_live",
    "bytes_live",
    "queue_topics",
    "queue_leases_in_flight",
    "sse_connections",
    "watch_sessions",
    "ready",
    "replay_progress",
    "uptime_ms",
    "wal",
}
WAL_KEYS = {
    "fsyncs",
    "frames",
    "batches",
    "bytes_written",
    "rotations",
    "queue_depth",
    "queue_depth_peak",
    "submit_full_total",
    "read_only",
    "fsync_count",
    "fsync_micros_total",
}


def text(server: Server) -> str:
    answer = server.send("GET", "/v0/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.body.decode()


def scrape(server: Server) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text(server).splitlines():
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            assert series not in found, series
            found[series] = float(value)
    return found


def as_json(server: Server, accept: str = "application/json") -> Any:
    answer = server.send("GET", "/v0/metrics", Accept=accept)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    return answer.json


def test_every_series_is_there_with_its_kind(server: Server, new_topic: NewTopic) -> None:
    queue = new_topic(type="queue", durability="fsync")
    queue.write(1)
    body = text(server)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", body, re.M))
    found = scrape(server)
    families = {series.partition("{")[0] for series in found}
    assert families >= GAUGES | COUNTERS
    assert {kinds[name] for name in GAUGES} == {"gauge"}
    assert {kinds[name] for name in COUNTERS} == {"counter"}
    assert kinds["topics_wal_fsync_latency_us"] == "histogram"
    label = '[a-z_]+="[^"]*"'
    assert all(re.fullmatch(rf"[a-z_]+(\{{{label}(,{label})*\}})?", series) for series in found)


def test_the_histogram_of_syncs(server: Server, new_topic: NewTopic) -> None:
    new_topic(durability="fsync").write(1)
    found = scrape(server)
    buckets = [found[f'topics_wal_fsync_latency_us_bucket{{le="{bound}"}}'] for bound in BUCKETS]
    assert buckets == sorted(buckets)
    assert len([series for series in found if "latency_us_bucket" in series]) == len(BUCKETS)
    assert found["topics_wal_fsyncs_total"] > 0
    assert buckets[-1] == found["topics_wal_fsync_latency_us_count"] == found["topics_wal_fsyncs_total"]
    assert found["topics_wal_fsync_latency_us_sum"] > 0


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, application/json;q=0.9", "Application/JSON"]
)
def test_the_same_as_json(server: Server, accept: str) -> None:
    body = as_json(server, accept)
    assert set(body) - {"performance"} >= JSON_KEYS
    assert set(body["wal"]) >= WAL_KEYS
    # Numbers all of them; whether writes are off is 0 or 1.
    assert {type(value) for value in body["wal"].values()} == {int}
    found = scrape(server)
    assert body["topics"] == found["topics_topics"]
    assert body["records_live"] == found["topics_records_live"]
    assert body["bytes_live"] == found["topics_bytes_live"]
    assert body["ready"] in (True, 1)
    assert body["replay_progress"] == 1.0
    assert body["wal"]["fsync_count"] == body["wal"]["fsyncs"]
    for name in ("ephemeral", "memory", "disk", "fsync"):
        assert body[f"topics_{name}"] == found[f'topics_topics_by_class{{class="{name}"}}']


def test_figures_follow_what_happens(boot: Boot, streams: Streams) -> None:
    server = boot()
    empty = scrape(server)
    assert empty["topics_topics"] == empty["topics_records_live"] == empty["topics_routers"] == 0
    for name in ("ephemeral", "memory", "disk", "fsync"):
        assert empty[f'topics_topics_by_class{{class="{name}"}}'] == 0
    log, queue = server.topic("log", cap_records=2), server.topic("jobs", type="queue", durability="memory")
    log.fill(3)
    queue.write("abc", "def")
    server.send("POST", f"{queue.path}/claim", {"node": "w", "lease_ms": 60_000}).ok()
    server.send("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"}).ok(201)
    session(server, ["log"])
    reader = streams.watch(server, ["log"])
    client = streams.socket(server)
    found = scrape(server)
    expected = {
        "topics_topics": 3,
        'topics_topics_by_class{class="disk"}': 2,
        'topics_topics_by_class{class="memory"}': 1,
        "topics_routers": 1,
        "topics_records_live": 4,
        "topics_bytes_live": 12,
        'topics_topic_head_seq{topic="log"}': 3,
        'topics_topic_earliest_seq{topic="log"}': 2,
        'topics_topic_records_live{topic="log"}': 2,
        'topics_topic_bytes_live{topic="log"}': 2,
        'topics_topic_queue_ready{topic="jobs"}': 1,
        'topics_topic_queue_in_flight{topic="jobs"}': 1,
        "topics_topic_metrics_truncated": 0,
        "topics_queue_topics": 1,
        "topics_queue_leases_in_flight": 1,
        "topics_sse_connections": 2,
        "topics_watch_sessions": 2,
        "topics_ready": 1,
        "topics_recovery_progress": 1,
        "topics_wal_read_only": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert 'topics_topic_queue_ready{topic="log"}' not in found
    body = as_json(server)
    assert (body["queue_leases_in_flight"], body["sse_connections"], body["watch_sessions"]) == (1, 2, 2)
    reader.close()
    client.close()
    eventually(lambda: scrape(server)["topics_sse_connections"] == 0)
    log.drop().ok()
    after = scrape(server)
    assert after["topics_routers"] == 0
    assert 'topics_topic_head_seq{topic="log"}' not in after


def test_frames_count_appended_records_and_no_copies(server: Server, new_topic: NewTopic) -> None:
    source = new_topic(durability="fsync")
    for number in range(3):
        body = {"source": source.name, "dest": f"frames-{number}"}
        server.send("PUT", f"/v0/routers/frames-{number}", body).ok(201)
    before = scrape(server)["topics_wal_frames_total"]
    source.write(1)
    source.write(2, 3, 4)
    for number in range(3):
        assert TopicHandle(server, f"frames-{number}").state()["count"] == 4
    assert scrape(server)["topics_wal_frames_total"] == before + 4


def test_expired_leases_do_not_count(server: Server, new_topic: NewTopic) -> None:
    queue = new_topic(type="queue")
    queue.write(1)
    before = scrape(server)["topics_queue_leases_in_flight"]
    server.send("POST", f"{queue.path}/claim", {"node": "w", "lease_ms": 150}).ok()
    assert scrape(server)["topics_queue_leases_in_flight"] == before + 1
    eventually(lambda: scrape(server)["topics_queue_leases_in_flight"] == before)
    assert scrape(server)[f'topics_topic_queue_ready{{topic="{queue.name}"}}'] == 1


def test_at_most_a_thousand_topics_are_listed(boot: Boot) -> None:
    server = boot()
    records = b'{"records":[{"data":1}]}'
    for number in range(1000):
        server.send("POST", f"/v0/topics/t{number:04}", records).ok(201)
    found = scrape(server)
    assert found["topics_topic_metrics_truncated"] == 0
    assert sum(series.startswith("topics_topic_head_seq{") for series in found) == 1000
    server.topic("one-more")
    found = scrape(server)
    assert found["topics_topic_metrics_truncated"] == 1
    assert found["topics_topics"] == 1001
    assert sum(series.startswith("topics_topic_head_seq{") for series in found) == 1000


def test_metrics_need_the_read_scope(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="reader:read,writer:write")
    server.fresh_request("GET", "/v0/metrics").refused(401, "unauthorized")
    server.fresh_request("GET", "/v0/metrics?token=reader").refused(401, "unauthorized")
    for key, status in (("reader", 200), ("writer", 403)):
        answer = server.fresh_request("GET", "/v0/metrics", None, {"Authorization": f"Bearer {key}"})
        assert answer.status == status


def test_priority_in_topic_state(server: Server, new_topic: NewTopic) -> None:
    fresh = new_topic()
    assert fresh.state()["effective_priority"] == 0
    assert fresh.state("")["effective_priority"] == 500
    assert 450 <= fresh.state()["effective_priority"] <= 500
    read = new_topic()
    read.diff()
    assert 450 <= read.state()["effective_priority"] <= 500
    still = new_topic(auto_priority=False)
    assert still.state("")["effective_priority"] == 0
    for given, shown in ((7, 7), (-40, -40), (5000, 1000), (-5000, -1000), (0, 0)):
        manual = new_topic(priority=given)
        assert manual.state("")["effective_priority"] == shown
        assert manual.state()["config"]["priority"] == shown
        listed = server.send("GET", f"/v0/topics?prefix={manual.name}").ok()["topics"]
        assert next(entry for entry in listed if entry["topic"] == manual.name)["effective_priority"] == shown
