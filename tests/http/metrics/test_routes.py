"""Metrics as text and as JSON, of a real server with real topics."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.http.metrics.scraping import send, text
from tests.http.streaming import RunningApp
from topics.http.metrics.figures import labels


def series(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


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
