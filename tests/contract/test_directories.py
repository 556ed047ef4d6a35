"""A directory has one owner: what a second server, a copy or a restore must not do to it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.contract.conftest import Boot
from tests.contract.server import Server, TopicHandle
from tests.support import eventually
from tests.support.damage import FORMAT, OTHER_FORMAT, give_other_format, pictured

SMALL = {"TOPICS_SEGMENT_MAX_EVENTS": "10", "TOPICS_HOT_RETAIN_SEGMENTS": "0"}


def with_cold_segments(boot: Boot, cold: Path, directory: str = "data") -> Server:
    """A server that has moved most of a topic into its cold directory."""
    server = boot(directory, TOPICS_COLD_DIR=str(cold), **SMALL)
    topic = server.topic("t", durability="fsync")
    for first in range(0, 200, 20):
        topic.write(*range(first, first + 20))
    eventually(lambda: len(list(cold.glob("*.segment"))) >= 8, 20, "nothing moved to the second tier")
    return server


def refuses_to_start(data_dir: Path, cold: Path) -> str:
    """The only line that it says."""
    server = Server(data_dir, {"TOPICS_COLD_DIR": str(cold), **SMALL})
    server.log_file = data_dir.with_name("refused.log")
    server.log_file.unlink(missing_ok=True)
    server.launch()
    try:
        assert server.exit_code() == 2
    finally:
        server.kill()
    assert not server.port_file.exists()
    (line,) = server.log().splitlines()
    return line


def test_a_second_server_does_not_touch_the_cold_directory_of_the_first(boot: Boot, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    server = with_cold_segments(boot, cold)
    line = refuses_to_start(tmp_path / "second", cold)
    assert str(cold) in line
    assert str(tmp_path / "data") in line
    # Not even a directory was made for it.
    assert not (tmp_path / "second").exists()
    server.stop()
    before = pictured(cold)
    assert str(cold) in refuses_to_start(tmp_path / "second", cold)
    assert pictured(cold) == before
    # Nor one that has been in use, with segments of the same numbers.
    second = with_cold_segments(boot, tmp_path / "cold-2", "second")
    second.stop()
    mine = pictured(tmp_path / "second")
    assert str(cold) in refuses_to_start(tmp_path / "second", cold)
    assert pictured(cold) == before
    assert pictured(tmp_path / "second") == mine
    server.start()
    records, gaps = server.topic("t", durability="fsync").drain()
    assert ([record["data"] for record in records], gaps) == (list(range(200)), [])


def test_a_directory_that_is_not_empty_is_not_taken(tmp_path: Path) -> None:
    cold = tmp_path / "photos"
    cold.mkdir()
    (cold / "0000000000000001.segment").write_bytes(b"of another log")
    (cold / "holiday.tmp").write_bytes(b"a picture")
    before = pictured(cold)
    line = refuses_to_start(tmp_path / "data", cold)
    assert str(cold) in line
    assert "not empty" in line
    assert pictured(cold) == before
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_made_is_told_by_its_setting(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_bytes(b"a file")
    line = refuses_to_start(taken, tmp_path / "cold")
    assert "TOPICS_DATA_DIR" in line
    assert str(taken) in line
    line = refuses_to_start(tmp_path / "data", taken / "cold")
    assert "TOPICS_COLD_DIR" in line
    assert str(taken / "cold") in line
    assert taken.read_bytes() == b"a file"


def test_what_others_put_there_stays(boot: Boot, tmp_path: Path) -> None:
    """Under names that the server uses itself, too."""
    cold = tmp_path / "cold"
    server = with_cold_segments(boot, cold)
    server.stop()
    others = [cold / name for name in ("notes.txt", "notes.tmp", "0000000000009999.segment")]
    for path in others:
        path.write_bytes(b"mine")
    server.start()
    topic = server.topic("t", durability="fsync")
    topic.delete(before_seq=1000)
    eventually(lambda: len(list(cold.glob("*.segment"))) == 1, 20, "cleared files stayed")
    assert topics("compact", "--purge", "--url", server.url).code == 0
    server.restart(cleanly=False)
    for path in others:
        assert path.read_bytes() == b"mine"


def test_a_restore_asks_for_a_directory_of_its_own(boot: Boot, tmp_path: Path) -> None:
    cold, backups, target = tmp_path / "cold", tmp_path / "backups", tmp_path / "again"
    server = with_cold_segments(boot, cold)
    assert topics("backup", backups, "--url", server.url).code == 0
    for is_running in (True, False):
        if not is_running:
            server.stop()
        before = sorted(pictured(cold))
        for arguments, environment in (
            ((), {"TOPICS_COLD_DIR": str(cold)}),
            (("--cold-dir", cold), {}),
            (("--same-history", "--cold-dir", cold), {}),
        ):
            line = refused("restore", backups, target, *arguments, **environment)
            assert str(cold) in line
            assert "one of its own" in line
            assert not target.exists()
        assert sorted(pictured(cold)) == before
    own = tmp_path / "own"
    outcome = topics("restore", backups, target, "--json", "--cold-dir", own)
    assert outcome.code == 0, outcome.errors
    # It is another log, which knows where it comes from.
    listed = topics("backup", backups, "--list", "--json").json["backups"][0]
    assert outcome.json["restored_from"] == listed["identity"]
    assert outcome.json["identity"] != listed["identity"]
    assert str(cold) in refuses_to_start(target, cold)
    again = boot("again", TOPICS_COLD_DIR=str(own), **SMALL)
    again.topic("t", durability="fsync").write(*range(20))
    eventually(lambda: len(list(own.glob("*.segment"))) >= 8, 20, "nothing moved to its own directory")
    assert len(again.topic("t", durability="fsync").drain()[0]) == 220
    # And so does a backup of it.
    for arguments in (("--url", again.url), ("--data-dir", target, "--cold-dir", own)):
        if arguments[0] == "--data-dir":
            again.stop()
        taken = topics("backup", tmp_path / "more", *arguments, "--json").json
        assert (taken["identity"], taken["restored_from"]) == (outcome.json["identity"], listed["identity"])
    assert f"restored from {listed['identity']}" in topics("backup", tmp_path / "more", "--list").output


def test_verbs_obey_it(boot: Boot, tmp_path: Path) -> None:
    cold, data = tmp_path / "cold", tmp_path / "data"
    with_cold_segments(boot, cold).stop()
    with_cold_segments(boot, tmp_path / "cold-2", "data-2").stop()
    places = [tmp_path / name for name in ("data", "cold", "data-2", "cold-2")]
    before = pictured(*places)
    for arguments in (
        ("check", data),
        ("backup", tmp_path / "backups", "--data-dir", data),
        ("compact", "--purge", "--data-dir", data),
    ):
        line = refused(*arguments, "--cold-dir", tmp_path / "cold-2")
        assert f"the cold directory {tmp_path / 'cold-2'} belongs to another log" in line
        assert pictured(*places) == before
    for arguments in (("check", data), ("compact", "--purge", "--data-dir", data)):
        outcome = topics(*arguments, "--cold-dir", cold, "--json")
        assert outcome.code == 0, outcome.errors + outcome.output


def test_a_copy_of_a_data_directory_does_not_get_the_cold_one(boot: Boot, tmp_path: Path) -> None:
    cold, data = tmp_path / "cold", tmp_path / "data"
    server = with_cold_segments(boot, cold)
    server.stop()
    shutil.copytree(data, tmp_path / "copy")
    before = pictured(cold)
    line = refuses_to_start(tmp_path / "copy", cold)
    assert str(cold) in line
    assert "copy" in line
    assert pictured(cold) == before
    # Moved, it is the same log at another place.
    data.rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "copy")
    moved = boot("moved", TOPICS_COLD_DIR=str(cold), **SMALL)
    assert len(moved.topic("t", durability="fsync").drain()[0]) == 200


def test_a_lock_that_cannot_be_walked_around(boot: Boot, tmp_path: Path) -> None:
    server = boot()
    topic = server.topic("t", durability="fsync")
    topic.fill(10)
    for _ in range(2):
        (tmp_path / "data" / ".topics.lock").unlink(missing_ok=True)
        second = Server(tmp_path / "data", {"TOPICS_PORT_FILE": str(tmp_path / "second.port")})
        second.log_file = tmp_path / "second.log"
        second.launch()
        try:
            assert second.exit_code() not in (0, -signal.SIGKILL)
        finally:
            second.kill()
        assert not (tmp_path / "second.port").exists()
    assert topic.write(11)["last_seq"] == 11
    server.restart(cleanly=False)
    assert topic.seqs() == list(range(1, 12))


def test_the_cold_directory_is_locked_as_well(boot: Boot, tmp_path: Path) -> None:
    """Against a second server of the very same log, whose data directory nothing tells from the first."""
    cold = tmp_path / "cold"
    server = with_cold_segments(boot, cold)
    server.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    server.start()
    owner = cold / ".topics.owner"
    (cold / ".topics.lock").unlink()
    line, _, _ = owner.read_text().partition("\n")
    assert json.loads(line)["data_dir"] == str(tmp_path / "data")
    moved = (tmp_path / "data").rename(tmp_path / "elsewhere")
    line = refuses_to_start(tmp_path / "copy", cold)
    assert str(cold) in line
    moved.rename(tmp_path / "data")
    assert len(TopicHandle(server, "t").drain()[0]) == 200


# Replaced while a server runs


def moved_away(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


def replaced_by_a_copy(data: Path) -> None:
    moved_away(data)
    shutil.copytree(data.with_name("elsewhere"), data)


def emptied(data: Path) -> None:
    for path in data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    "happens", [moved_away, replaced_by_a_copy, emptied], ids=lambda happens: happens.__name__
)
def test_a_server_whose_directory_is_replaced_acknowledges_nothing(
    boot: Boot, tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    server, data = boot(), tmp_path / "data"
    topic = server.topic("t", durability="disk")
    topic.fill(5)
    assert server.send("GET", "/v0/ready").json["status"] == "ready"
    happens(data)
    before = pictured(data)
    eventually(lambda: topic.post({"records": [{"data": 1}]}).status == 500, 5, "it goes on acknowledging")
    ready = server.send("GET", "/v0/ready").json
    assert (ready["status"], ready["reason"]) == ("degraded", "directory_replaced")
    server.send("GET", "/v0/ready?for=writes").refused(503, "not_ready")
    assert "replaced or moved away" in topic.post({"records": [{"data": 1}]}).json["error"]["message"]
    assert "replaced or moved away" in server.log()
    # What it knows is still read, and nothing is written to what lies there now.
    assert topic.seqs()[:5] == [1, 2, 3, 4, 5]
    # So is everything that an operator would look at now.
    assert b"\ntopics_writes_enabled 0\n" in server.send("GET", "/v0/metrics").body
    info = server.send("GET", "/v0/info").ok()
    assert (info["writes"], info["reason"]) == (False, "directory_replaced")
    assert info["disk"]["free_bytes"] > 0
    server.stop()
    if happens is not emptied:
        assert pictured(data) == before


def test_another_server_may_use_the_path_meanwhile(boot: Boot, tmp_path: Path) -> None:
    """Moved, the directory is still held: no server gets in at its new place."""
    first, data = boot(), tmp_path / "data"
    first.topic("t", durability="fsync").fill(5)
    data.rename(tmp_path / "elsewhere")
    line = refuses_to_start(tmp_path / "elsewhere", tmp_path / "cold")
    assert str(tmp_path / "elsewhere") in line
    second = Server(data, {"TOPICS_PORT_FILE": str(tmp_path / "second.port")})
    second.port_file, second.log_file = tmp_path / "second.port", tmp_path / "second.log"
    second.start()
    try:
        topic = second.topic("t", durability="fsync")
        topic.fill(3)
        eventually(lambda: first.send("GET", "/v0/ready").json["status"] == "degraded", 5)
        first.stop()
        topic.fill(3)
        second.restart(cleanly=False)
        assert topic.seqs() == [1, 2, 3, 4, 5, 6]
    finally:
        second.kill()
    # Everything the first one acknowledged is where it went.
    found = boot("elsewhere").topic("t", durability="fsync")
    assert found.seqs() == [1, 2, 3, 4, 5]


def test_a_cold_directory_that_is_away_costs_no_record(boot: Boot, tmp_path: Path) -> None:
    """Its disk may come back: what lies there must not be announced as lost."""
    cold = tmp_path / "cold"
    server = with_cold_segments(boot, cold)
    topic = server.topic("t", durability="fsync")
    server.stop()
    server.start()
    away = cold.rename(tmp_path / "away")
    assert topic.ask_diff(from_seq=0).status == 500
    topic.write(*range(40))
    assert server.send("GET", "/v0/ready").json["status"] == "ready"
    away.rename(cold)
    records, gaps = topic.drain()
    assert (len(records), gaps) == (240, [])


def test_what_another_version_wrote_is_refused(boot: Boot, tmp_path: Path) -> None:
    """In one line, by every command, and nothing changes."""
    data, backups = tmp_path / "data", tmp_path / "backups"
    server = boot()
    server.topic("t", durability="fsync").write(1)
    topics("backup", backups, "--url", server.url)
    server.stop()
    for path in data.glob("journal/*.journal"):
        give_other_format(path)
    (manifest,) = backups.glob("*/manifest.json")
    manifest.write_text(manifest.read_text().replace(f'"format": {FORMAT}', f'"format": {OTHER_FORMAT}'))
    before = pictured(data, backups)
    way_on = "read its topics with the version that wrote it"
    line = refuses_to_start(data, tmp_path / "cold")
    assert f"the data directory {data} has format {OTHER_FORMAT}" in line
    assert way_on in line
    for arguments in (
        ("check", data),
        ("compact", "--purge", "--data-dir", data),
        ("backup", tmp_path / "others", "--data-dir", data),
        ("backup", backups, "--prune", "1"),
        ("restore", backups, tmp_path / "restored"),
    ):
        line = refused(*arguments)
        assert f"has format {OTHER_FORMAT}" in line
        assert way_on in line
    assert pictured(data, backups) == before
    assert not (tmp_path / "cold").exists()
    assert not (tmp_path / "restored").exists()
