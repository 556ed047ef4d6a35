"""`topics compact --purge` on a server and on a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.ops.test_purge import found
from tests.support import ServerProcess

SECRET = "to-be-forgotten"


def fill(server: ServerProcess, topic: str = "t") -> None:
    records = [{"data": f"{SECRET}-{n}" if n % 2 else n, "tag": "them" if n % 2 else "us"} for n in range(40)]
    for first in range(0, 40, 10):
        server.post(f"/v0/topics/{topic}", {"records": records[first : first + 10]})


def read(server: ServerProcess, topic: str = "t") -> list[object]:
    page = server.post(f"/v0/topics/{topic}/diff", {"limit": 1000, "include_tags": True})
    return [record["data"] for record in page["records"]]


def test_a_running_server(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, TOPICS_SEGMENT_MAX_EVENTS="10").start()
    try:
        fill(server)
        fill(server, "other")
        server.post("/v0/topics/t/delete", {"match": "them"})
        url = server.url
        outcome = topics("compact", "--purge", "--url", url, "--topic", "t", "--json")
        assert outcome.code == 0, outcome.errors
        assert (outcome.json["state"], outcome.json["records"]) == ("done", 20)
        assert len(read(server)) == 20
        assert len(read(server, "other")) == 40
        server.request("DELETE", "/v0/topics/other")
        outcome = topics("compact", "--purge", TOPICS_URL=url)
        assert outcome.code == 0, outcome.errors
        assert "removed" in outcome.output
        assert found(tmp_path / "data", SECRET, "them") == []
        unknown = topics("compact", "--purge", "--url", url, "--topic", "nobody")
        assert (unknown.code, unknown.output) == (1, "")
        assert unknown.errors == 'topics: no topic named "nobody" (404 topic_not_found)\n'
    finally:
        server.stop()


def test_a_directory(tmp_path: Path) -> None:
    sizes = {"TOPICS_SEGMENT_MAX_EVENTS": "10", "TOPICS_HOT_RETAIN_SEGMENTS": "1"}
    cold = {**sizes, "TOPICS_COLD_DIR": str(tmp_path / "cold")}
    server = ServerProcess(tmp_path, **cold).start()
    try:
        fill(server)
        kept = [value for value in read(server) if SECRET not in str(value)]
        server.post("/v0/topics/t/delete", {"match": "them"})
        assert "stop the server first" in refused(
            "compact", "--purge", "--data-dir", tmp_path / "data", **cold
        )
        server.kill()
        outcome = topics("compact", "--purge", "--data-dir", tmp_path / "data", "--json", **cold)
        assert outcome.code == 0, outcome.errors
        assert outcome.json["records"] == 20
        assert found(tmp_path / "data", SECRET, "them") == []
        assert found(tmp_path / "cold", SECRET, "them") == []
        assert list((tmp_path / "cold").glob("*.segment"))
        # Without the second tier, most of the topic would seem to be lost.
        assert "--cold-dir" in refused("compact", "--purge", "--data-dir", tmp_path / "data", **sizes)
        server.start()
        assert read(server) == kept
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["compact"], "--purge"),
        (["compact", "--purge", "--data-dir", "/nowhere"], "no directory /nowhere"),
        (["compact", "--purge", "--data-dir", "/proc"], "not a data directory"),
        (["compact", "--purge", "--url", "localhost"], "not the address of a server"),
    ],
)
def test_mistakes(arguments: list[str], hint: str) -> None:
    assert hint in refused(*arguments)


def test_without_a_key_for_everything(tmp_path: Path) -> None:
    keys = "all,writer:write,part:admin:team-"
    server = ServerProcess(tmp_path, TOPICS_API_KEYS=keys).start()
    try:
        url = server.url
        for status, key in (("403", "writer"), ("403", "part"), ("401", "")):
            outcome = topics("compact", "--purge", "--url", url, TOPICS_API_KEY=key)
            assert (outcome.code, outcome.output, status in outcome.errors) == (1, "", True)
        assert topics("compact", "--purge", "--url", url, TOPICS_API_KEY="all").code == 0
    finally:
        server.stop()
