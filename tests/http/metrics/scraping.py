"""Asking an application for its metrics."""

from __future__ import annotations

from typing import Any

from tests.http.streaming import RunningApp
from tests.support import Answer


def text(app: RunningApp, **headers: str) -> str:
    return app.call("GET", "/v0/metrics", **headers).body.decode()


def scrape(app: RunningApp, **headers: str) -> dict[str, float]:
    lines = [line for line in text(app, **headers).splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def send(app: RunningApp, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    answer = app.call(method, path, body, **headers)
    assert answer.status < 300, answer.body
    return answer
