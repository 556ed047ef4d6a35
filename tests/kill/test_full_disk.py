"""A disk that runs full under a writer: clear errors, no corruption, and all is well when space returns."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ServerProcess

MIB = 1 << 20
BULK = "x" * 2000


class SmallDisk:
    """A file system of a few megabytes, filled and freed by a file beside ours."""

    def __init__(self, directory: Path) -> None:
        self._filler = directory / "filler"
        self.directory = directory

    def fill(self, server: ServerProcess) -> None:
        try:
            with self._filler.open("wb") as file:
                while True:
                    file.write(bytes(64 * 1024))
                    file.flush()
        except OSError:
            pass

    def free(self, server: ServerProcess) -> None:
        self._filler.unlink()


class SizeLimit:
    """Where nothing may be mounted: no file of the server may grow beyond what it is now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fill(self, server: ServerProcess) -> None:
        self._limit(server, 64 * 1024)

    def free(self, server: ServerProcess) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(server: ServerProcess, size: int) -> None:
        # A new process has no limit.
        if server.process is not None:
            limits = (size, resource.RLIM_INFINITY)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)


@pytest.fixture(params=["a small disk", "a size limit"])
def disk(request, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if request.param == "a size limit":
        mount = ["false"]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    yield SmallDisk(place) if mounted else SizeLimit(place)
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


def write(server, topic, number):
    records = [{"data": {"n": number, "bulk": BULK}}]
    return server.request("POST", f"/v0/topics/{topic}", {"records": records})


def numbers(server, topic):
    found, cursor = [], 0
    while True:
        page = server.post(f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000})
        assert page["tombstone"] is None
        found += [record["data"]["n"] for record in page["records"]]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def refuses_to_start(server):
    """Or starts, where a little room is left; but never dies of it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    environment = inherited | {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(server.directory / "data")}
    command = [sys.executable, "-m", "topics.cli.main", "serve"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        _, said = process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert "No space left" in said.splitlines()[-1]


def test_a_full_disk_under_a_writer(disk):
    server = ServerProcess(disk.directory, TOPICS_SEGMENT_MAX_EVENTS="500", TOPICS_HOT_BYTES="262144").start()
    try:
        for topic, durability in (("synced", "fsync"), ("plain", "disk")):
            server.put(f"/v0/topics/{topic}", {"durability": durability})
        acked = {
            topic: [n for n in range(200) if write(server, topic, n).status == 200]
            for topic in ("synced", "plain")
        }
        disk.fill(server)
        refusals = []
        for number in range(200, 20_000):
            for topic, kept in acked.items():
                answer = write(server, topic, number)
                if answer.status == 200:
                    kept.append(number)
                else:
                    refusals.append(answer)
            if len(refusals) >= 4:
                break
        for answer in refusals:
            envelope = json.loads(answer.body)["error"]
            assert (answer.status, envelope["code"]) == (500, "internal")
            assert "storage refused" in envelope["message"]
        assert len(refusals) >= 4
        # Reading goes on, and shows what was acknowledged and nothing else.
        assert {topic: numbers(server, topic) for topic in acked} == acked
        assert server.request("GET", "/v0/health").status == 200
        server.kill()
        refuses_to_start(server)
        disk.free(server)
        server.start()
        assert {topic: numbers(server, topic) for topic in acked} == acked
        assert write(server, "synced", -1).status == 200
    finally:
        server.kill()


def test_space_returns(disk):
    server = ServerProcess(disk.directory, TOPICS_SEGMENT_MAX_EVENTS="500", TOPICS_HOT_BYTES="262144").start()
    try:
        server.put("/v0/topics/t", {"durability": "fsync"})
        kept = []
        for number in range(300):
            if number == 100:
                disk.fill(server)
            if write(server, "t", number).status in (200, 201):
                kept.append(number)
        assert kept[:100] == list(range(100))
        disk.free(server)
        server.stop()
        server.start()
        assert numbers(server, "t") == kept
        assert write(server, "t", 1000).status == 200
        assert numbers(server, "t") == [*kept, 1000]
        head = server.get("/v0/topics/t")["head_seq"]
        assert head >= len(kept) + 1
    finally:
        server.kill()
