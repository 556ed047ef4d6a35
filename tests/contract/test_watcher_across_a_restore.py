"""The program that found it: a watcher reads, its server is restored to an earlier moment, others write on.

Whatever the watcher uses to come back, it is told, and then gets every record of the restored log. There are
processes for all of it: a server, `topics backup`, `topics restore`, and a server on the result.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.server import Server
from tests.contract.streams import Streams, session
from tests.http.bulk import scan

# Read before the restore; what is left of that; and what is written after it.
READ, KEPT, NEW = 5, 3, 4


@dataclass
class Restored:
    """The server on the restored directory, and all that a watcher kept from the one before."""

    server: Server
    streams: Streams
    seq: int
    epoch: int
    last_id: str
    # Of a topic that was made after the moment of the restore, and is made again now.
    young_id: str
    young_epoch: int

    def position(self) -> dict[str, Any]:
        return {"from_seq": self.seq, "epoch": self.epoch}


@pytest.fixture(scope="module", params=["a moment", "the whole backup"])
def restored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    root = tmp_path_factory.mktemp("restored")
    streams = Streams()
    before = Server(root / "before").start()
    topic = before.topic("t", durability="fsync")
    topic.write(*range(KEPT))
    before.send("PUT", "/v0/topics/t/cursors/watcher", {"seq": KEPT}).ok(201)
    at = moment_after(before.send("GET", "/v0/topics/t/cursors/watcher").ok()["updated_ts"])
    if request.param == "the whole backup":
        backup(before, root)
    topic.write(*range(KEPT, READ))
    before.topic("young").write(*range(READ))
    last_id, young_id = (read_all(streams, before, name) for name in ("t", "young"))
    epoch, young_epoch = (before.send("GET", f"/v0/topics/{name}").ok()["epoch"] for name in ("t", "young"))
    if request.param == "a moment":
        backup(before, root)
    before.stop()
    more = ["--at", str(at)] if request.param == "a moment" else []
    run("restore", root / "backups", root / "after", *more)
    after = Server(root / "after").start()
    assert after.send("GET", "/v0/topics/t").ok()["head_seq"] == KEPT
    after.topic("t", durability="fsync").write(*(f"new {number}" for number in range(NEW)))
    after.topic("young").write(*(f"new {number}" for number in range(READ + 1)))
    yield Restored(after, streams, READ, epoch, last_id, young_id, young_epoch)
    streams.close()
    after.kill()


def moment_after(ts: int) -> int:
    """A moment by which all of this was there, and which is over before anything else happens."""
    while time.time() * 1000 < ts + 2:
        time.sleep(0.001)
    return ts + 1


def backup(server: Server, root: Path) -> None:
    run("backup", root / "backups", "--url", server.url)


def run(*arguments: object) -> None:
    subprocess.run([Server.command[0], *map(str, arguments)], check=True, capture_output=True)


def read_all(streams: Streams, server: Server, name: str) -> str:
    frames = streams.watch(server, [name]).until("caught-up")
    assert [record["$seq"] for record in frames[0].data["records"]] == list(range(1, READ + 1))
    return str(frames[-1].id)


Reader = Callable[[Restored], tuple[Any, list[Any]]]


def by_diff(restored: Restored) -> tuple[Any, list[Any]]:
    page = restored.server.send("POST", "/v0/topics/t/diff", restored.position()).ok()
    return page["tombstone"], page["records"]


def by_scan(restored: Restored) -> tuple[Any, list[Any]]:
    found = scan(restored.server, "t", **restored.position())
    return found.gaps[0], [{"$seq": row["seq"]} for row in found.rows]


def by_watch(restored: Restored) -> tuple[Any, list[Any]]:
    return streamed(restored, {"t": restored.position()})


def by_id(restored: Restored) -> tuple[Any, list[Any]]:
    """A new session, which begins at the end, and the id of the last frame of the old one."""
    return streamed(restored, {"t": {"tail": True}}, **{"Last-Event-ID": restored.last_id})


def streamed(restored: Restored, wanted: Any, **headers: str) -> tuple[Any, list[Any]]:
    made = session(restored.server, wanted)
    frames = restored.streams.events(restored.server, made["stream_url"], **headers).until("caught-up")
    gap, *records, _ = frames
    assert gap.event == "tombstone"
    return gap.data, [record for frame in records for record in frame.data["records"]]


def by_socket(restored: Restored) -> tuple[Any, list[Any]]:
    socket = restored.streams.socket(restored.server)
    socket.send(op="subscribe", topic="t", **restored.position())
    present = socket.next("subscribed")["topics"]["t"]["epoch"]
    gap, record = socket.next("tombstone"), socket.next("record")
    assert record["epoch"] == present
    return gap, record["records"]


def by_named_cursor(restored: Restored) -> tuple[Any, list[Any]]:
    cursor = restored.server.send("GET", "/v0/topics/t/cursors/watcher").ok()
    assert (cursor["seq"], cursor["epoch"], cursor["lag"]) == (KEPT, restored.epoch, KEPT + NEW)
    page = {"from_seq": cursor["seq"], "epoch": cursor["epoch"]}
    found = restored.server.send("POST", "/v0/topics/t/diff", page).ok()
    return found["tombstone"], found["records"]


@pytest.mark.parametrize("read", [by_diff, by_scan, by_watch, by_id, by_socket, by_named_cursor])
def test_nothing_is_skipped_in_silence(restored: Restored, read: Reader) -> None:
    gap, records = read(restored)
    assert gap["reason"] == "recreated"
    assert (gap["gap_from"], gap["gap_to"]) == (1, 0)
    if read is not by_id:  # an id of a first life is a plain map
        assert gap["previous_epoch"] == restored.epoch
    assert [record["$seq"] for record in records] == list(range(1, KEPT + NEW + 1))


def test_nor_in_a_topic_that_the_restored_log_never_had(restored: Restored) -> None:
    """Its name is new there, and readers know one of that name all the same."""
    server = restored.server
    page = server.send(
        "POST", "/v0/topics/young/diff", {"from_seq": READ, "epoch": restored.young_epoch}
    ).ok()
    assert page["tombstone"]["reason"] == "recreated"
    gap, records = streamed(restored, {"young": {"tail": True}}, **{"Last-Event-ID": restored.young_id})
    assert gap["reason"] == "recreated"
    assert len(records) == len(page["records"]) == READ + 1
