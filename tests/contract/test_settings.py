"""Settings of a real server: those that are wrong stop the start, and each has its place in the order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server

SERVE = Server.command
# A server that starts after all would run for ever.
PATIENCE_S = 10.0


def refused(tmp_path: Path, *flags: str, **environment: str) -> str:
    """The one line that says why it does not start."""
    server = Server(tmp_path / "data", environment)
    server.command = (*SERVE, *flags)
    server.patience_s = PATIENCE_S
    server.launch()
    try:
        assert server.exit_code() == 2, server.log()
    finally:
        server.kill()
    (line,) = server.log().splitlines()
    assert not (tmp_path / "data").exists()
    assert not server.port_file.exists()
    return line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOPICS_PORT", "42o0"),
        ("TOPICS_PORT", "65536"),
        ("TOPICS_PROBE_AUTH", "maybe"),
        ("TOPICS_MAX_TOPICS", "-1"),
        ("TOPICS_SEGMENT_MAX_BYTES", "1e3"),
        ("TOPICS_SEQ_BASE", "0"),
    ],
)
def test_a_value_that_cannot_be_read_stops_the_start(tmp_path: Path, name: str, value: str) -> None:
    line = refused(tmp_path, **{name: value})
    assert name in line
    assert value in line


def test_a_flag_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    assert "TOPICS_PORT" in refused(tmp_path, "--port", "42o0")


def test_a_name_that_does_not_exist_stops_the_start(tmp_path: Path) -> None:
    line = refused(tmp_path, TOPICS_MAX_TOPIC="5")
    assert "TOPICS_MAX_TOPIC:" in line
    assert "TOPICS_MAX_TOPICS?" in line


def test_a_mistake_in_the_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "topics.toml").write_text("max_topic = 5\n")
    line = refused(tmp_path, TOPICS_CONFIG=str(tmp_path / "topics.toml"))
    assert "max_topic:" in line
    assert "did you mean max_topics?" in line


def test_names_of_kubernetes_and_of_clients_are_no_mistake(boot: Boot) -> None:
    server = boot(
        TOPICS_SERVICE_HOST="10.0.0.1",
        TOPICS_SERVICE_PORT="4000",
        TOPICS_PORT_4000_TCP_ADDR="10.0.0.1",
        TOPICS_URL="http://elsewhere",
        TOPICS_API_KEY="for-clients",
        TOPICS_TEST_ANYTHING="1",
        TOPICS_BENCH_ANYTHING="1",
    )
    server.send("GET", "/v0/topics").ok()


def test_the_port_of_a_kubernetes_service_is_ignored(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"TOPICS_PORT": "tcp://10.0.0.1:4000"})
    server.command = (*SERVE, "--port", "0")
    server.start()
    server.send("GET", "/v0/topics").ok()
    server.stop()
    (warning,) = [line for line in server.log().splitlines() if "WARNING" in line]
    assert "TOPICS_PORT" in warning


def test_flags_environment_file(tmp_path: Path) -> None:
    (tmp_path / "topics.toml").write_text(
        f'port = 1\nmax_topics = 1\nmax_routers = 1\nseq_base = 7\ndata_dir = "{tmp_path}/from-file"\n'
    )
    server = Server(tmp_path / "data", {"TOPICS_MAX_TOPICS": "2"})
    server.command = (*SERVE, "--config", str(tmp_path / "topics.toml"), "--data-dir", str(tmp_path / "flag"))
    server.start()
    try:
        assert server.host_and_port[1] > 1
        assert server.topic("a").write(1)["first_seq"] == 7
        server.topic("b")
        refusal = server.send("PUT", "/v0/topics/c", {})
        assert (refusal.status, refusal.json["error"]["detail"]) == (429, {"limit": "max_topics", "max": 2})
        assert (tmp_path / "flag" / "journal").is_dir()
        assert not (tmp_path / "from-file").exists()
    finally:
        server.stop()


@pytest.mark.parametrize(("word", "asked"), [("yes", True), ("on", True), ("off", False), ("0", False)])
def test_words_for_a_switch(boot: Boot, word: str, asked: bool) -> None:
    server = boot(TOPICS_API_KEYS="k", TOPICS_PROBE_AUTH=word)
    assert server.fresh_request("GET", "/v0/health").status == (401 if asked else 200)


def test_zero_switches_sealing_by_size_and_by_age_off(boot: Boot, tmp_path: Path) -> None:
    server = boot(TOPICS_SEGMENT_MAX_BYTES="0", TOPICS_SEGMENT_MAX_AGE_MS="0")
    topic = server.topic("t")
    topic.write(*["x" * 1000] * 100)
    server.restart(cleanly=True)
    assert len(topic.seqs()) == 100
    assert list((tmp_path / "data" / "segments").iterdir()) == []
