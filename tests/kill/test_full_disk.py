"""A disk that runs full under a writer: clear errors, no corruption, and all is well when space returns."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.small_disk import SizeLimit, SmallDisk, mounted
from tests.support import ServerProcess, eventually

BULK = "x" * 2000


@pytest.fixture(params=["a small disk", "a size limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk | SizeLimit]:
    place = tmp_path / "small"
    if request.param == "a size limit":
        place.mkdir()
        yield SizeLimit(place)
        return
    with mounted(place, 24) as is_mounted:
        yield SmallDisk(place) if is_mounted else SizeLimit(place)


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
            assert (answer.status, envelope["code"]) == disk.refusal
        assert len(refusals) >= 4
        # Reading goes on, and shows what was acknowledged and nothing else.
        assert {topic: numbers(server, topic) for topic in acked} == acked
        assert server.request("GET", "/v0/health").status == 200
        server.kill()
        # So it does when the server starts while there is no room.
        server.start()
        assert {topic: numbers(server, topic) for topic in acked} == acked
        server.kill()
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
        assert len(kept) < 300
        disk.free(server)
        if isinstance(disk, SizeLimit):
            server.stop()
            server.start()
        eventually(lambda: write(server, "t", 1000).status == 200, 10, "writes do not return")
        assert numbers(server, "t") == [*kept, 1000]
        # No seq was left out on the way.
        assert server.get("/v0/topics/t")["head_seq"] == len(kept) + 1
        server.stop()
        server.start()
        assert numbers(server, "t") == [*kept, 1000]
    finally:
        server.kill()
