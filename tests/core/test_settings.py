"""What a setting may be, and what becomes of those that may be more than one thing."""

from __future__ import annotations

from dataclasses import fields

import pytest

from topics.core.settings import Settings
from topics.core.settings_reader import SettingsReader, variable


def read(environment: dict[str, str]) -> Settings:
    reader = SettingsReader()
    reader.read_environment(environment)
    return reader.configuration().settings


@pytest.mark.parametrize(
    ("given", "shortest_ms"), [("0", 1), ("1", 1), ("300", 300), ("1000", 1000), ("5000", 1000)]
)
def test_the_shortest_heartbeat_is_lowered_and_never_raised(given: str, shortest_ms: int) -> None:
    assert read({"TOPICS_TEST_MIN_HEARTBEAT_MS": given}).test_min_heartbeat_ms == shortest_ms


def test_without_a_word_about_it_the_shortest_heartbeat_is_a_second() -> None:
    assert read({}).test_min_heartbeat_ms == 1000


def test_zero_switches_two_reasons_for_sealing_off() -> None:
    settings = read({"TOPICS_SEGMENT_MAX_BYTES": "0", "TOPICS_SEGMENT_MAX_AGE_MS": "0"})
    assert settings.seal_age_ms == 2**63 - 1
    # Places in a run are 32 bits wide, so there is an end to it in any case.
    assert settings.seal_bytes == read({"TOPICS_SEGMENT_MAX_BYTES": str(2**40)}).seal_bytes == 2**30
    assert Settings().seal_bytes == 2**26


def test_every_default_can_be_written_down() -> None:
    """What a default means can also be said in the environment: none is outside of what it may be."""
    for known in fields(Settings):
        value = getattr(Settings(), known.name)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert getattr(read({variable(known.name): text}), known.name) == value


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(Settings(api_keys="hush"))
