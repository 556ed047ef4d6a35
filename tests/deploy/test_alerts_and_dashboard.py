"""What ships for operators names only what the server really exports, and asks for it in ways that work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.promql import ON_COUNTERS, ON_GAUGES, Use, uses
from tests.support import ServerProcess

OPS = Path(__file__).parents[2] / "deploy"
DASHBOARD = OPS / "grafana" / "topics.json"
ALERTS = OPS / "prometheus" / "alerts.yml"
# Added by Prometheus itself.
_TARGET_LABELS = {"job", "instance"}


class Exported:
    """Every series a busy server exports, with its kind and its labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {"up": "gauge"}
        self.labels: dict[str, set[str]] = {"up": set()}
        for family in text_string_to_metric_families(text):
            counts = family.type == "histogram"
            names = {family.name + part for part in ("_bucket", "_sum", "_count")} if counts else set()
            names |= {sample.name for sample in family.samples} or {family.name}
            for name in names:
                self.kinds[name] = "counter" if counts else family.type
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)


@pytest.fixture(scope="module")
def exported(server: ServerProcess) -> Exported:
    """With at least one series in every family."""
    server.put("/v0/topics/jobs", {"type": "queue"})
    server.post("/v0/topics/source", {"records": [{"data": 1}]})
    server.put("/v0/routers/copies", {"source": "source", "dest": "dest"})
    server.put("/v0/topics/source/cursors/reader", {"seq": 0})
    return Exported(server.request("GET", "/v0/metrics").text)


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    document = json.loads(DASHBOARD.read_text())
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in document["templating"]["list"]:
        match = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"])
        if match:
            yield variable["name"], match[1]


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


EXPRESSIONS = [*dashboard_expressions(), *((rule["alert"], rule["expr"]) for rule in alerts())]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_every_expression_fits_what_is_exported(where: str, expression: str, exported: Exported) -> None:
    found, grouped = uses(expression)
    assert found
    known: set[str] = set(_TARGET_LABELS)
    for use in found:
        assert use.series in exported.kinds, f"there is no {use.series}"
        labels = exported.labels[use.series] | _TARGET_LABELS
        assert use.labels <= labels, f"{use.series} has no {use.labels - labels}"
        known |= labels
        _check_functions(use, exported.kinds[use.series])
    assert grouped <= known, f"nothing here has {grouped - known}"
    if "histogram_quantile(" in expression:
        assert "le" in grouped
        assert all(use.series.endswith("_bucket") for use in found)


def _check_functions(use: Use, kind: str) -> None:
    around = set(use.within)
    if around & ON_COUNTERS:
        assert kind == "counter", f"{use.series} is a {kind} and may fall"
        assert use.is_range
    if around & ON_GAUGES:
        assert kind == "gauge", f"{use.series} is a {kind}"
        assert use.is_range
    if kind == "counter":
        assert around & ON_COUNTERS, f"{use.series} only ever grows; show how fast"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("topics_no_such_thing > 0", "there is no"),
        ("rate(topics_topics[5m])", "may fall"),
        ("topics_wal_frames_total > 0", "only ever grows"),
        ('topics_ready{colour="red"} == 0', "has no"),
        ("sum by (colour) (topics_ready)", "nothing here has"),
        ("deriv(topics_wal_frames_total[5m])", "is a counter"),
    ],
)
def test_a_wrong_expression_is_noticed(wrong: str, why: str, exported: Exported) -> None:
    with pytest.raises(AssertionError, match=why):
        test_every_expression_fits_what_is_exported("", wrong, exported)


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any], exported: Exported) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    found, grouped = uses(rule["expr"])
    there = _TARGET_LABELS | (grouped or set.union(*(exported.labels[use.series] for use in found)))
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert used <= there
