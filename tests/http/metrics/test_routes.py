"""Metrics as text and as JSON, of a real server with real topics."""

from __future__ import annotations

import re
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.http.metrics.scraping import scrape, send, text
from tests.http.streaming import RunningApp
from tests.support import ServerProcess
from topics.core.clock import ManualClock
from topics.http.metrics.family import labels

Start = Callable[..., RunningApp]


def series(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def scrape_server(server: ServerProcess) -> dict[str, float]:
    answer = server.request("GET", "/v0/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return series(answer.text)


def test_every_class_is_always_shown(server: ServerProcess) -> None:
    found = scrape_server(server)
    for name in ("ephemeral", "memory", "disk", "fsync"):
        assert f'topics_topics_by_class{{class="{name}"}}' in found


def test_live_figures_follow_writes_and_deletes(server: ServerProcess) -> None:
    before = scrape_server(server)
    server.post("/v0/topics/metered", {"records": [{"data": 12}, {"data": 345}]})
    after = scrape_server(server)
    assert after["topics_topics"] == before["topics_topics"] + 1
    assert after["topics_records_live"] == before["topics_records_live"] + 2
    assert after["topics_bytes_live"] == before["topics_bytes_live"] + 5
    assert after['topics_topic_head_seq{topic="metered"}'] == 2
    assert after["topics_wal_frames_total"] == before["topics_wal_frames_total"] + 2
    server.post("/v0/topics/metered/delete", {"before_seq": 2})
    gone = scrape_server(server)
    assert gone['topics_topic_records_live{topic="metered"}'] == 1
    assert gone['topics_topic_earliest_seq{topic="metered"}'] == 2


def test_sync_histogram_counts_every_sync(server: ServerProcess) -> None:
    server.put("/v0/topics/synced", {"durable": True})
    server.post("/v0/topics/synced", {"records": [{"data": 1}]})
    found = scrape_server(server)
    assert found["topics_wal_fsync_latency_us_count"] == found["topics_wal_fsyncs_total"] > 0
    buckets = [found[f'topics_wal_fsync_latency_us_bucket{{le="{le}"}}'] for le in (50, 1000, 100000, "+Inf")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["topics_wal_fsyncs_total"]


def test_every_series_is_declared(server: ServerProcess) -> None:
    text = server.request("GET", "/v0/metrics").text
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    for name in series(text):
        family = re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name)
        assert family in declared or name.split("{")[0] in declared


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


def test_json_has_the_same_numbers(start: Start) -> None:
    app = start(clock=ManualClock(1_000_000))
    app.write("a", 1)
    as_json = app.call("GET", "/v0/metrics", Accept="application/json").json["series"]
    as_text = scrape(app)
    steady = [name for name in as_json if name.startswith("topics_") and "http" not in name]
    steady = [name for name in steady if "loop" not in name and "disk" not in name]
    assert len(steady) > 25
    for name in steady:
        assert as_json[name] == as_text[name], name
    assert set(as_json) <= set(as_text)
