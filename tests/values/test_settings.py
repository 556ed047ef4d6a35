"""Settings from the environment: what cannot be parsed, and what is pulled into range."""

from __future__ import annotations

import pytest

from topics.values.settings import Settings


@pytest.mark.parametrize(
    ("given", "shortest_ms"),
    [("0", 1), ("1", 1), ("300", 300), ("1000", 1000), ("5000", 1000), ("x", 1000), ("-1", 1000), ("", 1000)],
)
def test_the_shortest_heartbeat_is_lowered_and_never_raised(given: str, shortest_ms: int) -> None:
    settings = Settings.from_environment({"TOPICS_TEST_MIN_HEARTBEAT_MS": given})
    assert settings.test_min_heartbeat_ms == shortest_ms


def test_without_a_word_about_it_the_shortest_heartbeat_is_a_second() -> None:
    assert Settings.from_environment({}).test_min_heartbeat_ms == 1000
