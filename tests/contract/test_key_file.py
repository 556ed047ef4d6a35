"""Keys in a file, and what SIGHUP does: keys come and go while the server runs and every connection stays."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.contract.server import Client, Server
from tests.contract.streams import Streams
from tests.support import eventually


class Guarded(Server):
    """A server whose keys are in a file."""

    def __init__(self, tmp_path: Path, keys: str, **environment: str) -> None:
        self.keys = tmp_path / "keys"
        self.keys.write_text(keys)
        super().__init__(tmp_path / "data", {"TOPICS_API_KEYS_FILE": str(self.keys), **environment})

    def reload(self, keys: str | None = None) -> None:
        """New keys, if given; and wait until they have been looked at."""
        if keys is not None:
            self.keys.write_text(keys)
        looked = self.looked()
        self.signal(signal.SIGHUP)
        eventually(lambda: self.looked() > looked, 20, self.log)

    def looked(self) -> int:
        log = self.log()
        return log.count("settings were read again") + log.count("the keys stay as they were")

    def status(self, token: str, method: str = "GET", path: str = "/v0/topics", body: object = None) -> int:
        client = self.client(token)
        try:
            return client.send(method, path, body).status
        finally:
            client.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    server = Guarded(tmp_path, "# ours\n\nboss=root\nreader=hush:read:in.\n")
    yield server.start()
    server.kill()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_plain_and_hashed_keys_with_their_rights(tmp_path: Path) -> None:
    digest = sha256(b"hashed").hexdigest()
    server = Guarded(tmp_path, f"boss=plain\nsha256:{digest}:read:in.\n", TOPICS_API_KEYS="old:read").start()
    try:
        assert server.status("plain", "PUT", "/v0/topics/in.a", {}) == 201
        assert server.status("plain", "PUT", "/v0/topics/out", {}) == 201
        assert server.status("hashed", "GET", "/v0/topics/in.a") == 200
        assert server.status("hashed", "GET", "/v0/topics/out") == 403
        assert server.status("hashed", "DELETE", "/v0/topics/in.a") == 403
        assert server.status("old", "GET", "/v0/topics/out") == 200
        for wrong in ("boss", digest, f"sha256:{digest}", "boss=plain", ""):
            assert server.status(wrong) == 401
    finally:
        server.kill()


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    server = Guarded(tmp_path, "", TOPICS_HOST="0.0.0.0")
    server.start()
    try:
        assert server.fresh_request("GET", "/v0/topics").status == 401
        server.reload("late\n")
        assert server.status("late") == 200
    finally:
        server.kill()


@pytest.mark.parametrize("keys", ["topsecret:reed\n", "good\nname=\n", "sha256:topsecret\n", None])
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path, keys: str | None) -> None:
    server = Guarded(tmp_path, keys or "")
    if keys is None:
        server.keys.unlink()
    server.launch()
    assert server.exit_code() == 2
    (line,) = server.log().splitlines()
    assert "TOPICS_API_KEYS_FILE" in line
    assert "topsecret" not in line


def test_sighup_reads_the_keys_again(guarded: Guarded) -> None:
    kept, removed = guarded.client("root"), guarded.client("hush")
    for client in (kept, removed):
        # The third of the same is taken without a look at the key.
        for _ in range(3):
            asked = client.send("POST", "/v0/topics/in.a/diff", {"from_seq": 0})
            assert asked.status == 404
    guarded.reload("boss=root\nwriter=fresh:write\n")
    # The connections are still there, and what was known about them is asked again.
    assert kept.send("POST", "/v0/topics/in.a/diff", {"from_seq": 0}).status == 404
    assert removed.send("POST", "/v0/topics/in.a/diff", {"from_seq": 0}).status == 401
    assert guarded.status("fresh", "POST", "/v0/topics/in.a", {"records": [{"data": 1}]}) == 201
    kept.close()
    removed.close()


def test_other_rights_count_at_once(guarded: Guarded) -> None:
    assert guarded.status("hush", "GET", "/v0/topics/out") == 403
    guarded.reload("boss=root\nreader=hush:read:out\n")
    assert guarded.status("hush", "GET", "/v0/topics/out") == 404
    assert guarded.status("hush", "GET", "/v0/topics/in.a") == 403


@pytest.mark.parametrize("broken", ["boss=root\nhush:reed\n", "gone", "a directory", "in UTF-16"])
def test_what_cannot_be_read_keeps_the_old_keys(guarded: Guarded, broken: str) -> None:
    if broken in ("gone", "a directory"):
        guarded.keys.unlink()
        if broken == "a directory":
            guarded.keys.mkdir()
        guarded.reload()
    elif broken == "in UTF-16":
        guarded.keys.write_text("root\n", "utf-16")
        guarded.reload()
    else:
        guarded.reload(broken)
    assert guarded.status("root") == 200
    assert guarded.status("hush") == 200
    (line,) = [line for line in guarded.log().splitlines() if " ERROR " in line]
    assert "TOPICS_API_KEYS_FILE" in line
    assert "hush" not in line


def session_of(client: Client) -> str:
    made = client.send("POST", "/v0/watch", {"topics": {"in.q": {}}})
    return str(made.ok()["stream_url"])


def test_streams_of_a_removed_key_end_and_those_of_others_go_on(guarded: Guarded, streams: Streams) -> None:
    keys = "boss=root\nworker=busy:rw\n"
    guarded.reload(keys)
    boss, worker = guarded.client("root"), guarded.client("busy")
    for client in (boss, worker):
        streams.close_with(client)
    assert boss.send("PUT", "/v0/topics/in.q", {"type": "queue"}).status == 201
    urls = {"root": session_of(boss), "busy": session_of(worker)}
    watches = {token: streams.events(guarded, url, **bearer(token)) for token, url in urls.items()}
    works = {t: streams.work(guarded, "in.q", "node=n", **bearer(t)) for t in urls}
    sockets = {token: streams.socket(guarded, **bearer(token)) for token in urls}

    guarded.reload(keys.replace("worker", "#"))

    for stream in (watches["busy"], works["busy"]):
        last = stream.rest()[-1]
        assert (last.event, last.data["code"], last.data["error"]) == ("error", 401, "unauthorized")
    farewell = sockets["busy"].next("error")
    assert (farewell["code"], farewell["request_id"]) == ("unauthorized", None)
    assert sockets["busy"].read() is None
    assert streams.get(guarded, urls["busy"], **bearer("busy")).status == 401
    # Should the key come back, its session does not.
    guarded.reload(keys)
    assert streams.get(guarded, urls["busy"], **bearer("busy")).status == 404

    boss.send("POST", "/v0/topics/in.q", {"records": [{"data": 7}]}).ok()
    assert watches["root"].until("record")[-1].data["records"][0]["data"] == 7
    assert works["root"].next("job").data["data"] == 7
    assert sockets["root"].ask(op="ping", request_id=1) == {"op": "pong", "request_id": 1}


def test_a_long_poll_of_a_removed_key_is_over(guarded: Guarded) -> None:
    assert guarded.status("root", "PUT", "/v0/topics/in.a", {}) == 201
    body = b'{"wait_ms":30000}'
    head = "POST /v0/topics/in.a/diff HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with guarded.raw(head.encode() + body) as wire, closing(guarded.client("root")) as boss:
        eventually(lambda: "topics_http_long_polls 1" in boss.send("GET", "/v0/metrics").text)
        guarded.reload("boss=root\n")
        assert wire.read().json["records"] == []


# Runs a command in a terminal of its own, which is closed when this process ends.
IN_A_TERMINAL = """
import os, pty, signal, sys
child, _ = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
with open("child", "w") as file:
    file.write(str(child))
signal.pause()
"""


@pytest.mark.parametrize("way", ["plain", "nohup"])
def test_closing_the_terminal_ends_a_server_that_was_not_to_outlive_it(tmp_path: Path, way: str) -> None:
    server = Server(tmp_path / "data", {"TOPICS_LOG_FILE": str(tmp_path / "log")})
    server.command = (sys.executable, "-c", IN_A_TERMINAL, way, *Server.command)
    server.start()
    child = int((tmp_path / "child").read_text())
    try:
        server.kill()
        if way == "plain":
            eventually(lambda: not is_alive(child), 20)
            assert "read again" not in (tmp_path / "log").read_text()
        else:
            eventually(lambda: "read again" in (tmp_path / "log").read_text(), 20)
            assert is_alive(child)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_without_a_terminal_outlives_sighup(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    server.signal(signal.SIGHUP)
    eventually(lambda: "settings were read again" in server.log(), 20)
    server.send("GET", "/v0/topics").ok()
    server.stop()
