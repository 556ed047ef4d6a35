"""`topics config`: what serve would use, and where it came from."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from topics.core.settings import Settings
from topics.core.settings_reader import variable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "topics.toml"
    path.write_text('port = 4003\nhost = "localhost"\nmax_topics = 7\naccess_log = true\n')
    return path


def test_every_setting_with_its_source(file: Path) -> None:
    outcome = topics(
        "config", "--port", "4001", TOPICS_CONFIG=str(file), TOPICS_MAX_TOPICS="8", TOPICS_PORT="2"
    )
    assert outcome.code == 0
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in outcome.output.splitlines()}
    assert list(rows) == [variable(known.name) for known in fields(Settings)]
    assert rows["TOPICS_PORT"] == ["flag", "4001"]
    assert rows["TOPICS_MAX_TOPICS"] == ["environment", "8"]
    assert rows["TOPICS_HOST"] == ["file", "localhost"]
    assert rows["TOPICS_ACCESS_LOG"] == ["file", "on"]
    assert rows["TOPICS_PROBE_AUTH"] == ["default", "off"]
    assert rows["TOPICS_COLD_DIR"] == ["default", "unset"]
    assert rows["TOPICS_CONFIG"] == ["environment", str(file)]


def test_as_json(file: Path) -> None:
    told = topics("config", "--config", file, "--json", TOPICS_PORT="5").json
    assert set(told) == {variable(known.name) for known in fields(Settings)}
    assert told["TOPICS_PORT"] == {"value": 5, "from": "environment"}
    assert told["TOPICS_ACCESS_LOG"] == {"value": True, "from": "file"}
    assert told["TOPICS_COLD_DIR"] == {"value": None, "from": "default"}
    assert told["TOPICS_CONFIG"]["from"] == "flag"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_keys_are_not_shown(form: tuple[str, ...]) -> None:
    outcome = topics("config", *form, TOPICS_API_KEYS="hush-hush:read")
    assert "hush" not in outcome.output + outcome.errors
    assert "(not shown)" in outcome.output
    assert "(not shown)" not in topics("config", *form).output


def test_what_stops_a_server_stops_this(tmp_path: Path) -> None:
    assert "TOPICS_PORT" in refused("config", "--port", "42o0")
    assert "TOPICS_PORT" in refused("config", TOPICS_PRT="1")
    assert "TOPICS_HOST" in refused("config", TOPICS_HOST="localhost:http")
    assert "TOPICS_API_KEYS" in refused("config", TOPICS_API_KEYS="k:reed")
    assert "refusing to listen on 0.0.0.0" in refused("config", TOPICS_HOST="0.0.0.0")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refused("config", "--config", tmp_path / "none.toml")
    assert "TOPICS_CONFIG" in refused("config", TOPICS_CONFIG=str(tmp_path))
    broken = tmp_path / "broken.toml"
    for content in (b"port = ", b"port = 1\nport = 2\n", b"\xff\xfe"):
        broken.write_bytes(content)
        assert f"{broken} is not TOML" in refused("config", "--config", broken)
    broken.write_text("prot = 4000")
    assert "did you mean port?" in refused("config", TOPICS_CONFIG=str(broken))


def test_a_path_that_is_no_text() -> None:
    assert r"a\udcffb" in topics("config", TOPICS_DATA_DIR="a\udcffb").output
    assert (
        topics("config", "--json", TOPICS_DATA_DIR="a\udcffb").json["TOPICS_DATA_DIR"]["value"] == "a\udcffb"
    )


def test_it_warns_as_serve_does() -> None:
    outcome = topics("config", TOPICS_PORT="tcp://10.0.0.1:80")
    assert outcome.code == 0
    assert outcome.errors.startswith("topics: TOPICS_PORT is ignored")


def test_verbs_on_a_directory_read_the_same_settings(tmp_path: Path) -> None:
    """A mistyped cold directory would be reported as a damaged log."""
    assert "did you mean TOPICS_COLD_DIR?" in refused("check", tmp_path, TOPICS_COLD_DRI="x")
