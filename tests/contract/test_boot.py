"""Starting, refusing to start, stopping, and the probes."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server
from tests.support import eventually


def refuses_to_start(tmp_path: Path, **environment: str) -> str:
    server = Server(tmp_path / "refused", environment)
    process = server.launch()
    try:
        assert server.exit_code() not in (0, -signal.SIGKILL)
        return server.log()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "keys",
    ["k:reed", "good,k:read+fly", "k:+", ":read", "::prefix", "good, :admin:", "k:read,write:x", "k:all"],
)
def test_bad_keys_refuse_the_start(tmp_path: Path, keys: str) -> None:
    log = refuses_to_start(tmp_path, TOPICS_API_KEYS=keys)
    assert "TOPICS_API_KEYS" in log
    assert not (tmp_path / "refused.port").exists()


@pytest.mark.parametrize(
    "environment",
    [
        {"TOPICS_HOST": "0.0.0.0"},
        {"TOPICS_HOST": "::"},
        {"TOPICS_HOST": "0.0.0.0:0"},
        {"TOPICS_HOST": "no-such-host.invalid"},
        {"TOPICS_HOST": "0.0.0.0", "TOPICS_API_KEYS": " , "},
        {"TOPICS_HOST": "0.0.0.0", "TOPICS_ALLOW_INSECURE_NO_AUTH": "no"},
        {"TOPICS_HOST": "0.0.0.0", "TOPICS_ALLOW_INSECURE_NO_AUTH": "false"},
    ],
    ids=str,
)
def test_an_exposed_address_without_keys_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    refuses_to_start(tmp_path, **environment)
    assert not (tmp_path / "refused.port").exists()


@pytest.mark.parametrize(
    "environment",
    [
        {"TOPICS_API_KEYS": "k"},
        {"TOPICS_ALLOW_INSECURE_NO_AUTH": "1"},
        {"TOPICS_ALLOW_INSECURE_NO_AUTH": "yes"},
    ],
    ids=["keys", "insecure", "insecure in another word"],
)
def test_an_exposed_address_is_possible_on_purpose(boot: Boot, environment: dict[str, str]) -> None:
    server = boot(TOPICS_HOST="0.0.0.0", **environment)
    client = server.client("k")
    client.send("GET", "/v0/topics").ok()
    client.close()


def test_a_host_with_a_port_is_complete(boot: Boot) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = boot(TOPICS_HOST=f"127.0.0.1:{port}", TOPICS_PORT="1")
    assert server.host_and_port == ("127.0.0.1", port)
    server.send("GET", "/v0/topics").ok()


def test_a_port_in_use_refuses_the_start(boot: Boot, tmp_path: Path) -> None:
    server = boot()
    refuses_to_start(tmp_path, TOPICS_PORT=str(server.host_and_port[1]))
    server.send("GET", "/v0/topics").ok()


def test_a_port_file_that_cannot_be_written_is_fatal(tmp_path: Path) -> None:
    refuses_to_start(tmp_path, TOPICS_PORT_FILE=str(tmp_path / "missing" / "port"))


def test_the_port_file_appears_whole(boot: Boot, tmp_path: Path) -> None:
    server = boot()
    assert (tmp_path / "data.port").read_text().strip() == f"127.0.0.1:{server.host_and_port[1]}"
    assert [path.name for path in tmp_path.iterdir() if "port" in path.name] == ["data.port"]
    assert stat.S_ISREG(os.stat(tmp_path / "data.port").st_mode)


def test_one_process_per_data_directory(boot: Boot, tmp_path: Path) -> None:
    server = boot()
    topic = server.topic("t")
    topic.write(1)
    second = Server(tmp_path / "data", {"TOPICS_PORT_FILE": str(tmp_path / "second.port")})
    second.launch()
    assert second.exit_code() not in (0, -signal.SIGKILL)
    assert not (tmp_path / "second.port").exists()
    topic.write(2)
    assert (tmp_path / "data" / ".topics.lock").exists()
    # The lock dies with its holder.
    server.restart(cleanly=False)
    assert topic.seqs() == [1, 2]


def test_an_empty_directory_is_a_clean_start(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert boot("empty").send("GET", "/v0/topics").ok()["topics"] == []


def test_a_client_that_waits_for_the_port_alone_does_not_fail(tmp_path: Path) -> None:
    """On an empty directory first; then on one that has to be recovered, which holds the request back."""
    server = Server(tmp_path / "data")
    for start in range(4):
        server.launch()
        eventually(server.port_file.exists, 20, server.log, every_s=0.0005)
        server.address = server.port_file.read_text()
        written = server.send("POST", "/v0/topics/t", {"records": [{"data": 1}] * 1000})
        assert written.status == (200 if start else 201), written.body
        server.hang_up()
        server.kill()
    assert server.start().topic("t").state()["head_seq"] == 4000
    server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_stops_cleanly_in_spite_of_idle_connections(boot: Boot, number: int) -> None:
    server = boot()
    topic = server.topic("t", durability="disk")
    topic.fill(3)
    with server.raw():
        began = time.monotonic()
        server.signal(number)
        assert server.exit_code() == 0
        assert time.monotonic() - began < 8
    server.hang_up()
    server.start()
    assert topic.seqs() == [1, 2, 3]


def test_probes(boot: Boot) -> None:
    server = boot()
    for path in ("/v0/health", "/healthz"):
        answer = server.send("GET", path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.json["status"] == "ok"
        assert isinstance(answer.json["version"], str)
        assert isinstance(answer.json["uptime_ms"], int)
    server.topic("a")
    server.topic("b").write(1)
    for path in ("/v0/ready", "/readyz"):
        answer = server.send("GET", path)
        assert answer.status == 200
        body = answer.json
        assert (body["status"], body["wal_replay_complete"], body["topics"]) == ("ready", True, 2)
        assert body["codec"] in ("native", "python")
    first = server.send("GET", "/v0/health").json["uptime_ms"]
    time.sleep(0.02)
    assert server.send("GET", "/v0/health").json["uptime_ms"] > first
