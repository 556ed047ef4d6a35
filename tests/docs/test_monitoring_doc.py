"""docs/monitoring.md: every metric, alert and variable is in it, and its examples print what it says."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.examples import ROOT, Example, check_answer, examples, run_bash, table
from tests.support import ServerProcess

PAGE = ROOT / "docs" / "monitoring.md"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"


def test_every_metric_is_documented_with_its_kind(server: ServerProcess) -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \| .+ \|$", PAGE.read_text(), re.M)
    exposed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", server.request("GET", "/v0/metrics").text, re.M))
    assert dict(rows) == exposed
    assert len(rows) == len(exposed)


def test_every_label_is_documented(server: ServerProcess) -> None:
    server.put("/v0/routers/copies", {"source": "source", "dest": "dest"})
    server.put("/v0/topics/source/cursors/reader", {"seq": 0})
    documented = {
        name: set(re.findall(r"`([a-z]+)`", text))
        for name, text in re.findall(r"^\| `([a-z_]+)` \| (?:\w+) \| (.+) \|$", PAGE.read_text(), re.M)
    }
    same = {"topics_evicted_bytes_total": "topics_evicted_records_total"}
    for name, labels in re.findall(r"^(\w+)\{(.+)\} ", server.request("GET", "/v0/metrics").text, re.M):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        used = set(re.findall(r'([a-z]+)="', labels)) - {"le"}
        if not family.startswith("topics_topic_"):
            assert used <= documented[same.get(family, family)], family


def test_every_alert_is_documented() -> None:
    documented = [name.strip("`") for name, _ in table(PAGE, "Alert")]
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert documented == [rule["alert"] for rule in group["rules"]]


@pytest.mark.parametrize("example", examples(PAGE, "bash"), ids=lambda example: example.code[:40])
def test_examples(example: Example, server: ServerProcess) -> None:
    check_answer(example, run_bash(example.code, server))


def test_the_scrape_config_is_one() -> None:
    (example,) = examples(PAGE, "yaml")
    (job,) = yaml.safe_load(example.code)["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("topics", "/v0/metrics")


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(r"`(deploy/[\w./]+)`", PAGE.read_text()))
    assert len(named) == 3
    assert all((ROOT / path).exists() for path in named)
