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


@pytest.mark.parametrize(
    ("given", "base"), [("7", 7), (str(2**63 - 1), 2**63 - 1), (str(2**63), 1), ("9" * 19, 1), ("9" * 20, 1)]
)
def test_a_number_beyond_all_seqs_is_no_number(given: str, base: int) -> None:
    assert Settings.from_environment({"TOPICS_SEQ_BASE": given}).seq_base == base


@pytest.mark.parametrize(
    ("given", "is_on"), [("1", True), ("true", True), (" true", False), ("TRUE", False), ("yes", False)]
)
def test_only_two_words_switch_something_on(given: str, is_on: bool) -> None:
    settings = Settings.from_environment({"TOPICS_ALLOW_INSECURE_NO_AUTH": given})
    assert settings.allow_insecure_no_auth is is_on
