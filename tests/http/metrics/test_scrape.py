"""One look at all topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.http.metrics.scraping import scrape
from tests.http.streaming import RunningApp
from topics.log.engine import Engine
from topics.log.lifecycle import drop_topic

Start = Callable[..., RunningApp]


def test_many_topics_do_not_hold_others_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all topics takes several turns; topics that come and go meanwhile do not hurt."""
    monkeypatch.setattr("topics.http.metrics.figures._SLICE", 2)
    app = start()
    for number in range(7):
        app.write(f"t{number}", 1)
    original = Engine.find
    dropped: list[str] = []

    def find(engine: Engine, name: str) -> Any:
        if name == "t1" and not dropped:
            dropped.append(name)
            drop_topic(engine, "t5", False, lambda _: None, lambda _: None)
        return original(engine, name)

    monkeypatch.setattr(Engine, "find", find)
    found = scrape(app)
    assert dropped
    assert found["topics_topics"] == 6
    assert 'topics_topic_head_seq{topic="t5"}' not in found
    assert 'topics_topic_head_seq{topic="t6"}' in found
