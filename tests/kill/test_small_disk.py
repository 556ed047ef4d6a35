"""A full disk, seen by clients of a real server on a real small file system."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kill.small_disk import SmallDisk, mounted
from tests.support import Answer, ServerProcess, eventually
from tests.support.arrow import arrow_stream

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
MIB = 1 << 20
SIZE_MIB = 28
# Longer than the promised second: the machine may be busy.
SOON_S = 15


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.slow)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "small", SIZE_MIB, request.param) as is_mounted:
        if not is_mounted:
            pytest.skip("only root may mount a small file system")
        yield SmallDisk(tmp_path / "small")


@pytest.fixture
def start(disk: SmallDisk, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def start(**environment: str) -> ServerProcess:
        # Its log and its port are not part of what is tested.
        server = ServerProcess(tmp_path, TOPICS_DATA_DIR=str(disk.directory / "data"), **environment)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()


def write(server: ServerProcess, topic: str, data: Any, **fields: Any) -> Answer:
    return server.request("POST", f"/v0/topics/{topic}", {"records": [{"data": data}], **fields})


def fill(disk: SmallDisk, server: ServerProcess) -> None:
    """Until a write is refused, not only until the disk has no block left."""
    disk.fill(server)
    for number in range(2000):
        if write(server, "filling", "x" * 3000 + str(number)).status == 507:
            return
    raise AssertionError("there is always room")


def read(server: ServerProcess, topic: str) -> list[Any]:
    found: list[Any] = []
    cursor = 0
    while True:
        page = server.post(f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000})
        found += [record["data"] for record in page["records"]]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def test_what_grows_is_refused_and_what_shrinks_goes_on(
    disk: SmallDisk, start: Callable[..., ServerProcess]
) -> None:
    server = start()
    server.put("/v0/topics/filling", {})
    server.put("/v0/topics/jobs", {"type": "queue", "leases_durable": True})
    server.put("/v0/topics/gone", {})
    for topic in ("filling", "jobs", "gone"):
        server.post(f"/v0/topics/{topic}", {"records": [{"data": n, "tag": f"t{n}"} for n in range(20)]})
    fill(disk, server)

    refused: list[Answer] = [
        write(server, "filling", 1),
        write(server, "made-by-a-write", 1),
        server.request("PUT", "/v0/topics/new", {}),
        server.request("PUT", "/v0/routers/r", {"source": "jobs", "dest": "copies"}),
        server.request("POST", "/v0/topics/filling/append", arrow_stream({"data": ["1"]}), ARROW),
        server.request("PUT", "/v0/stages/s/parts/0?topic=filling", arrow_stream({"data": ["1"]}), ARROW),
    ]
    for answer in refused:
        answer.refused(507, "disk_full")
        assert int(answer.headers["retry-after"]) >= 1
    ready = server.request("GET", "/v0/ready")
    assert (ready.status, ready.json["status"], ready.json["reason"]) == (200, "degraded", "disk_full")
    for_writes = server.request("GET", "/v0/ready?for=writes")
    assert for_writes.refused(503, "not_ready") == {"reason": "disk_full"}
    info = server.get("/v0/info")
    assert (info["writes"], info["reason"]) == (False, "disk_full")
    assert 0 < info["disk"]["reserve_bytes"] <= SIZE_MIB * MIB // 16
    metrics = server.request("GET", "/v0/metrics").text
    assert "\ntopics_writes_enabled 0\n" in metrics
    assert "\ntopics_wal_read_only 0\n" in metrics
    assert "\ntopics_disk_full_in_seconds 0\n" in metrics
    assert server.log().count("the disk is full: appends are refused") == 1

    claimed = server.post("/v0/topics/jobs/claim", {"node": "w", "max": 3})["claimed"]
    seqs = [job["$seq"] for job in claimed]
    assert server.post("/v0/topics/jobs/ack", {"node": "w", "seqs": seqs[:2]})["acked"] == 2
    assert server.post("/v0/topics/jobs/nack", {"node": "w", "seqs": seqs[2:]})["nacked"] == 1
    assert server.post("/v0/topics/filling/delete", {"match": "t1*"})["deleted"] == 11
    assert server.put("/v0/topics/filling", {"cap_records": 100_000})["created"] is False
    server.put("/v0/topics/filling/cursors/reader", {"seq": 3})
    assert server.request("DELETE", "/v0/topics/gone").json["deleted"] is True
    purge = server.request("POST", "/v0/admin/purge").json
    path = f"/v0/admin/purge/{purge['purge']}"
    eventually(lambda: server.get(path)["finished_ms"] is not None, SOON_S)
    assert (server.get(path)["state"], server.get(path)["error"]) == ("done", None)
    names = [entry["topic"] for entry in server.get("/v0/topics")["topics"]]
    assert names == ["filling", "jobs"]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_what_was_refused_is_not_there_after_a_restart(
    disk: SmallDisk, start: Callable[..., ServerProcess], durability: str
) -> None:
    """200 writes at once, into what is left of the disk; of those answered 500, 24 had been there."""
    server = start(TOPICS_DISK_RESERVE_BYTES="0")
    server.put("/v0/topics/t", {"durability": durability})
    disk.fill(server, leaving=700 * 1024)
    answers: dict[int, int] = {}

    def send(numbers: range) -> None:
        for number in numbers:
            answers[number] = write(server, "t", [number, "x" * 20_000]).status

    writers = [threading.Thread(target=send, args=(range(first, 200, 10),)) for first in range(10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    acked = {number for number, status in answers.items() if status == 200}
    assert len(answers) == 200
    assert set(answers.values()) == {200, 507}
    assert {number for number, _ in read(server, "t")} == acked
    server.kill()
    disk.free(server)
    server.start()
    assert {number for number, _ in read(server, "t")} == acked
    assert server.get("/v0/topics/t")["head_seq"] == len(acked)


def test_writes_return_by_themselves_and_leave_out_no_seq(
    disk: SmallDisk, start: Callable[..., ServerProcess]
) -> None:
    """Readers wait all the while, and a refused write leaves no key behind: its retry is the first one."""
    server = start()
    server.put("/v0/topics/t", {"durability": "fsync"})
    server.put("/v0/topics/filling", {})
    for number in range(50):
        write(server, "t", number)
    fill(disk, server)
    for _ in range(50):
        assert write(server, "t", 50, idempotency_key="k").status == 507
    waiting: list[Any] = []

    def wait() -> None:
        waiting.append(server.post("/v0/topics/t/diff", {"from_seq": 50, "wait_ms": 20_000}))

    reader = threading.Thread(target=wait)
    reader.start()
    disk.free(server)
    returns = "writes do not return"
    eventually(lambda: write(server, "t", 50, idempotency_key="k").status == 200, SOON_S, returns)
    reader.join()
    assert [record["data"] for record in waiting[0]["records"]] == [50]
    assert write(server, "t", 50, idempotency_key="k").json["deduped"] is True
    assert server.get("/v0/ready")["status"] == "ready"
    assert server.request("GET", "/v0/ready?for=writes").status == 200
    assert read(server, "t") == list(range(51))
    assert server.get("/v0/topics/t")["head_seq"] == 51


def test_deleting_makes_room(disk: SmallDisk, start: Callable[..., ServerProcess]) -> None:
    """No file of others goes: what the log itself holds does, and with it the journal that held it."""
    server = start(TOPICS_SEGMENT_MAX_EVENTS="1000")
    written = 0
    while write(server, "t", [written, "x" * 20_000]).status in (200, 201):
        written += 1
    assert server.get("/v0/ready")["status"] == "degraded"
    # Half of it may be journal whose records are in segments. Then writes return, until that is full as well.
    server.post("/v0/topics/t/delete", {"before_seq": written + 10_000})
    eventually(lambda: write(server, "t", "again").status == 200, 2 * SOON_S, "there is no room")


@pytest.mark.parametrize("reserve", ["", "0"])
def test_a_start_on_a_full_disk(disk: SmallDisk, start: Callable[..., ServerProcess], reserve: str) -> None:
    server = start(**({"TOPICS_DISK_RESERVE_BYTES": reserve} if reserve else {}))
    server.put("/v0/topics/filling", {})
    server.put("/v0/topics/t", {"durability": "fsync"})
    for number in range(20):
        write(server, "t", number)
    fill(disk, server)
    server.kill()
    disk.fill(server)
    server.start()
    assert server.get("/v0/ready")["reason"] == "disk_full"
    assert write(server, "t", -1).status == 507
    assert read(server, "t") == list(range(20))
    if not reserve:
        assert server.post("/v0/topics/t/delete", {"before_seq": 6})["deleted"] == 5
        assert read(server, "t") == list(range(5, 20))
    kept = read(server, "t")
    # And a clean stop has nothing to lose.
    server.stop()
    server.start()
    assert read(server, "t") == kept
    disk.free(server)
    eventually(lambda: write(server, "t", 20).status == 200, SOON_S, "writes do not return")
    assert read(server, "t") == [*kept, 20]
    assert "Traceback" not in server.log()
