"""What a setting may be, and where it may come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ConfigError
from topics.core.settings import Settings
from topics.core.settings_reader import Configuration, SettingsReader, variable


@pytest.mark.parametrize(
    ("given", "shortest_ms"), [("0", 1), ("1", 1), ("300", 300), ("1000", 1000), ("5000", 1000)]
)
def test_the_shortest_heartbeat_is_lowered_and_never_raised(given: str, shortest_ms: int) -> None:
    assert read({"TOPICS_TEST_MIN_HEARTBEAT_MS": given}).settings.test_min_heartbeat_ms == shortest_ms


def test_without_a_word_about_it_the_shortest_heartbeat_is_a_second() -> None:
    assert read({}).settings.test_min_heartbeat_ms == 1000


def test_zero_switches_two_reasons_for_sealing_off() -> None:
    settings = read({"TOPICS_SEGMENT_MAX_BYTES": "0", "TOPICS_SEGMENT_MAX_AGE_MS": "0"}).settings
    assert settings.seal_age_ms == 2**63 - 1
    # Places in a run are 32 bits wide, so there is an end to it in any case.
    assert settings.seal_bytes == read({"TOPICS_SEGMENT_MAX_BYTES": str(2**40)}).settings.seal_bytes == 2**30
    assert Settings().seal_bytes == 2**26


def test_every_default_can_be_written_down() -> None:
    """What a default means can also be said in the environment: none is outside of what it may be."""
    for known in fields(Settings):
        value = getattr(Settings(), known.name)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert getattr(read({variable(known.name): text}).settings, known.name) == value


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(Settings(api_keys="hush"))


def read(
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, object] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Configuration:
    reader = SettingsReader()
    reader.read_flags(flags or {})
    reader.read_environment(environment or {})
    reader.read_file("topics.toml", file or {})
    return reader.configuration()


def mistake(**sources: Mapping[str, object]) -> str:
    """There is one, and it is one line."""
    with pytest.raises(ConfigError) as caught:
        read(**sources)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    told = read(
        flags={"port": "1"},
        environment={"TOPICS_PORT": "2", "TOPICS_HOST": "b"},
        file={"port": 3, "host": "c", "data_dir": "d"},
    )
    settings, origins = told.settings, told.origins
    assert (settings.port, settings.host, settings.data_dir, settings.max_topics) == (1, "b", "d", 100_000)
    assert [origins[name] for name in ("port", "host", "data_dir", "max_topics")] == [
        "flag",
        "environment",
        "file",
        "default",
    ]


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "YES", " On "])
def test_words_that_switch_on(word: str) -> None:
    assert read({"TOPICS_PROBE_AUTH": word}).settings.probe_auth is True


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "No"])
def test_words_that_switch_off(word: str) -> None:
    assert read({"TOPICS_PROBE_AUTH": word}, {"probe_auth": True}).settings.probe_auth is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOPICS_PORT", "42o0"),
        ("TOPICS_PORT", "65536"),
        ("TOPICS_PORT", "-1"),
        ("TOPICS_PORT", "4_000"),
        ("TOPICS_PORT", ""),
        ("TOPICS_PORT", "udp://10.0.0.1:4000"),
        ("TOPICS_MAX_TOPICS", "1e3"),
        ("TOPICS_MAX_TOPICS", "1.5"),
        ("TOPICS_MAX_TOPICS", "٣"),
        ("TOPICS_MAX_BODY_BYTES", "0"),
        ("TOPICS_SEGMENT_MAX_EVENTS", "0"),
        ("TOPICS_SEQ_BASE", "0"),
        ("TOPICS_SEQ_BASE", str(2**63)),
        ("TOPICS_SEQ_BASE", "9" * 20),
        ("TOPICS_PROBE_AUTH", "maybe"),
        ("TOPICS_PROBE_AUTH", ""),
        ("TOPICS_PROBE_AUTH", "2"),
        ("TOPICS_LOG_FORMAT", "xml"),
        ("TOPICS_TEST_MIN_HEARTBEAT_MS", "x"),
        ("TOPICS_DATA_DIR", ""),
    ],
)
def test_a_value_that_cannot_be_read_is_named(name: str, value: str) -> None:
    assert mistake(environment={name: value}).startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TOPICS_PRT", "TOPICS_PORT"),
        ("TOPICS_port", "TOPICS_PORT"),
        ("TOPICS_MAX_TOPIC", "TOPICS_MAX_TOPICS"),
        ("TOPICS_DATADIR", "TOPICS_DATA_DIR"),
        ("TOPICS_DATA_DIRECTORY", "TOPICS_DATA_DIR"),
        ("TOPICS_APIKEYS", "TOPICS_API_KEYS"),
        ("TOPICS_PROBEAUTH", "TOPICS_PROBE_AUTH"),
        ("TOPICS_PORTX_80_TCP", None),
        ("TOPICS_COLOUR", None),
        ("TOPICS_", None),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(name: str, meant: str | None) -> None:
    told = mistake(environment={name: "1"})
    assert told.startswith(f"{name}: there is no such setting")
    assert meant is None or f"did you mean {meant}?" in told


@pytest.mark.parametrize(
    "name",
    [
        "TOPICS_TEST_ANYTHING",
        "TOPICS_BENCH_TAGS",
        "TOPICS_SERVICE_HOST",
        "TOPICS_SERVICE_PORT_HTTP",
        "TOPICS_PORT_4000_TCP",
        "TOPICS_PORT_4000_TCP_ADDR",
        "TOPICS_URL",
        "TOPICS_KEY_FILE",
        "TOPICS_PROFILE",
        "TOPICS",
        "MY_TOPICS_PRT",
    ],
)
def test_names_that_are_for_others(name: str) -> None:
    told = read({name: "whatever"})
    assert set(told.origins.values()) == {"default"}
    assert told.warnings == []


def test_what_kubernetes_says_about_a_service_is_no_port() -> None:
    told = read({"TOPICS_PORT": "tcp://10.0.0.1:4000"}, {"port": 5})
    assert (told.settings.port, told.origins["port"]) == (5, "file")
    (warning,) = told.warnings
    assert "TOPICS_PORT" in warning
    # Where nothing of the kind comes from Kubernetes, it is a mistake.
    assert "--port (TOPICS_PORT)" in mistake(flags={"port": "tcp://10.0.0.1:4000"})
    assert "port (TOPICS_PORT)" in mistake(file={"port": "tcp://10.0.0.1:4000"})


def test_a_key_for_clients_is_not_taken_for_one_that_is_asked_for() -> None:
    (warning,) = read({"TOPICS_API_KEY": "hush"}).warnings
    assert "TOPICS_API_KEYS" in warning
    assert "hush" not in warning
    assert read({"TOPICS_API_KEY": "hush", "TOPICS_API_KEYS": "k"}).warnings == []
    assert read({"TOPICS_API_KEY": "hush"}, {"api_keys_file": "keys"}).warnings == []


def test_every_mistake_gets_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read({"TOPICS_PORT": "x", "TOPICS_NONE": "1"}, {"hots": 1}, {"port": "y"})
    assert len(str(caught.value).splitlines()) == 4


def test_a_wrong_value_stops_the_start_even_where_another_one_wins() -> None:
    assert "TOPICS_PORT" in mistake(environment={"TOPICS_PORT": "x"}, flags={"port": "1"})


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"prot": 1}, "did you mean port?"),
        ({"TOPICS_PORT": 1}, "did you mean port?"),
        ({"config": "other.toml"}, "config: there is no such setting"),
        ({"server": {"port": 1}}, "server: there is no such setting"),
        ({"port": 70_000}, "port (TOPICS_PORT)"),
        ({"port": True}, "port (TOPICS_PORT)"),
        ({"port": 1.5}, "port (TOPICS_PORT)"),
        ({"port": [1]}, "port (TOPICS_PORT)"),
        ({"port": -1}, "port (TOPICS_PORT)"),
        ({"host": 5}, "host (TOPICS_HOST)"),
        ({"api_keys": ["a"]}, "api_keys (TOPICS_API_KEYS)"),
        ({"log_format": 1}, "log_format (TOPICS_LOG_FORMAT)"),
        ({"a\nb": 1}, '"a\\nb"'),
    ],
)
def test_mistakes_in_the_file(content: Mapping[str, object], named: str) -> None:
    told = mistake(file=content)
    assert told.startswith("topics.toml: ")
    assert named in told


def test_the_file_may_write_values_as_text() -> None:
    settings = read(file={"port": "81", "access_log": "yes", "probe_auth": 1}).settings
    assert (settings.port, settings.access_log, settings.probe_auth) == (81, True, True)


def test_a_secret_in_the_wrong_form_is_not_shown() -> None:
    assert "hush" not in mistake(file={"api_keys": ["hush"]})


@given(st.dictionaries(st.text(max_size=20).map("TOPICS_".__add__), st.text(max_size=20), max_size=3))
def test_any_environment_is_read_or_refused_in_so_many_lines(environment: dict[str, str]) -> None:
    lines: list[str] = []
    try:
        read(environment)
    except ConfigError as error:
        lines = str(error).split("\n")
    assert len(lines) <= len(environment)
