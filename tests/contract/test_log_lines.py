"""What the log of a real server says: how it started, who asked, who ended it and what was flushed."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.contract.server import Server
from tests.contract.streams import Streams
from tests.support import eventually


def entries(server: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log().splitlines()]


def entry(server: Server, message: str) -> dict[str, Any]:
    (found,) = [entry for entry in entries(server) if entry["message"].startswith(message)]
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_start_and_the_stop_say_what_matters(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path / "data", {"TOPICS_LOG_FORMAT": "json"}).start()
    server.topic("a").write(1)
    server.topic("b")
    begun = entry(server, "listening on ")
    assert begun["message"] == f"listening on {server.address}"
    assert (begun["data_dir"], begun["topics"]) == (str(tmp_path / "data"), 0)
    assert begun["keys"] == "not asked for"
    assert begun["recovery_ms"] > 0
    assert begun["disk_free_bytes"] > begun["disk_reserve_bytes"] > 0

    with server.raw():
        server.signal(number)
        assert server.exit_code() == 0
    server.hang_up()
    assert entry(server, "stopping: ")["message"] == f"stopping: {number.name}"
    assert entry(server, "stopping: ")["connections"] >= 1
    ended = entries(server)[-1]
    assert ended["message"] == "stopped: everything is flushed"
    assert (ended["checkpoint"], ended["sealed_runs"]) == ("written", 0)
    assert ended["journal_bytes"] >= 0
    assert ended["took_ms"] > 0

    server.log_file.unlink()
    server.start(TOPICS_API_KEYS="k").stop()
    # Where there is something to recover, that is told first: it may take its time.
    assert [line["message"].partition(" ")[0] for line in entries(server)][:2] == ["recovering", "listening"]
    assert entry(server, "recovering")["data_dir"] == str(tmp_path / "data")
    begun = entry(server, "listening on ")
    assert (begun["topics"], begun["keys"]) == (2, "asked for")


def test_people_read_the_same_in_one_line(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    server.stop()
    first, stopping, stopped = server.log().splitlines()
    assert f"listening on {server.address} data_dir={tmp_path}/data topics=0 " in first
    assert 'keys="not asked for" recovery_ms=' in first
    assert "stopping: SIGTERM" in stopping
    assert "stopped: everything is flushed journal_bytes=" in stopped


def test_every_address_is_told(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"TOPICS_HOST": "localhost"}).start()
    server.stop()
    addresses = {info[4][0] for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    assert any(address in server.log() for address in addresses)


def test_a_start_that_is_refused_says_nothing_about_a_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(tmp_path / "data", {"TOPICS_PORT": str(taken.getsockname()[1])})
        server.launch()
        assert server.exit_code() == 2
    (line,) = server.log().splitlines()
    assert line.startswith("topics: cannot listen on 127.0.0.1:")


def test_the_access_log_names_client_and_key_and_never_the_key(tmp_path: Path, streams: Streams) -> None:
    keys = tmp_path / "keys"
    keys.write_text("shop=s3cret-of-the-shop\ns3cret-without-a-name:read\n")
    server = Server(tmp_path / "data", {"TOPICS_API_KEYS_FILE": str(keys), "TOPICS_LOG_FORMAT": "json"})
    server.start(TOPICS_ACCESS_LOG="yes")
    try:
        bearer = {"Authorization": "Bearer s3cret-of-the-shop"}
        client = server.client("s3cret-of-the-shop")
        for _ in range(3):
            client.send("POST", "/v0/topics/t", {"records": [{"data": 1}]})
        watch = client.send("POST", "/v0/watch", {"topics": {"t": {}}}).ok()["stream_url"]
        client.close()
        streams.events(server, watch, **bearer)
        streams.socket(server, **bearer)
        for token in ("s3cret-without-a-name", "s3cret-guess"):
            other = server.client(token)
            other.send("GET", "/v0/topics")
            other.close()
        eventually(lambda: '"status":401' in server.log())
    finally:
        server.stop()
    assert "s3cret" not in server.log()
    requests = [entry for entry in entries(server) if entry["logger"] == "topics.access"]
    assert all(entry["client"].startswith("127.0.0.1:") for entry in requests)
    by_name = [entry["route"] for entry in requests if entry.get("key") == "shop"]
    assert by_name == [*["/v0/topics/:topic"] * 3, "/v0/watch", "/v0/watch/:wid", "/v0/ws"]
    unnamed, stranger = [entry for entry in requests if entry["route"] == "/v0/topics"]
    assert len(unnamed["key"]) == 8
    assert "key" not in stranger


def test_a_client_on_ipv6(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"TOPICS_HOST": "::1", "TOPICS_ACCESS_LOG": "1"})
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        return  # this machine has none
    server.start()
    server.stop()
    assert 'client="[::1]:' in server.log()
