"""The manifest of segment files, and the account of what is missing."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import Answer, ServerProcess, eventually
from topics.storage.filesystem import Filesystem
from topics.storage.segment import DEAD, Segment


@pytest.fixture(scope="module")
def sealing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that seals every ten records, with a key for all names and one for some."""
    server = ServerProcess(tmp_path_factory.mktemp("segments"), TOPICS_SEGMENT_MAX_EVENTS="10")
    server.start()
    yield server
    server.stop()


def sealed_manifest(server: ServerProcess, topic: str, tail_from_seq: int) -> dict[str, Any]:
    def sealed() -> dict[str, Any] | None:
        found: dict[str, Any] = server.get(f"/v0/topics/{topic}/segments")
        if found["tail_from_seq"] >= tail_from_seq:
            return found
        server.request("DELETE", f"/v0/topics/{topic}/segments/{found['snapshot']}")
        return None

    manifest = eventually(sealed, 20, every_s=0.05)
    assert manifest is not None
    return manifest


def read_files(manifest: dict[str, Any]) -> list[int]:
    found: list[int] = []
    for run in manifest["runs"]:
        segment = Segment(Filesystem(), run["path"])
        entry = segment.entry(run["topic_id"], run["base"])
        alive = segment.flags(entry) != DEAD
        alive[np.frombuffer(base64.b64decode(run["dead"]), np.uint32)] = False
        found += [
            int(i) + run["base"] for i in np.flatnonzero(alive) if i + run["base"] >= manifest["earliest_seq"]
        ]
        segment.close()
    return found


def test_files_and_tail_together_hold_every_record(sealing: ServerProcess) -> None:
    for index in range(25):
        sealing.post("/v0/topics/m.all", {"records": [{"data": index, "tag": f"t{index % 5}"}]})
    sealing.post("/v0/topics/m.all/delete", {"match": "t3"})
    manifest = sealed_manifest(sealing, "m.all", 20)
    state = sealing.get("/v0/topics/m.all")
    assert (manifest["head_seq"], manifest["earliest_seq"], manifest["loss_line"], manifest["epoch"]) == (
        25,
        1,
        1,
        state["epoch"],
    )
    assert (manifest["seq_base"], manifest["ttl_ms"], manifest["holes"]) == (1, 0, [])
    assert manifest["data_dir"] == str(sealing.directory / "data")
    assert manifest["expires_ms"] > manifest["now"]
    assert set(manifest["runs"][0]) == {"path", "topic_id", "base", "count", "first_ts", "last_ts", "dead"}
    tail = sealing.post("/v0/topics/m.all/diff", {"from_seq": manifest["tail_from_seq"]})["records"]
    expected = [record["$seq"] for record in sealing.post("/v0/topics/m.all/diff", {})["records"]]
    assert read_files(manifest) + [record["$seq"] for record in tail] == expected


def test_a_lease_is_renewed_and_released(sealing: ServerProcess) -> None:
    sealing.post("/v0/topics/m.lease", {"records": [{"data": 1}]})
    manifest = sealing.get("/v0/topics/m.lease/segments")
    one = f"/v0/topics/m.lease/segments/{manifest['snapshot']}"
    renewed = sealing.request("POST", one + "/renew").json
    assert renewed["expires_ms"] >= manifest["expires_ms"]
    assert sealing.request("DELETE", one).json["released"] is True
    assert sealing.request("DELETE", one).json["released"] is False
    answer = sealing.request("POST", one + "/renew")
    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("what", ["segments", "ledger"])
def test_an_absent_topic_is_not_found(sealing: ServerProcess, what: str) -> None:
    assert sealing.request("GET", f"/v0/topics/m.absent/{what}").json["error"]["code"] == "topic_not_found"


def test_the_manifest_needs_a_key_without_name_restriction(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ServerProcess(
        tmp_path_factory.mktemp("keys"),
        TOPICS_API_KEYS="all,reader:r,some:r:a,writer:w",
        TOPICS_PROBE_AUTH="0",
    ).start()

    def get(path: str, key: str) -> Answer:
        return server.request("GET", path, headers={"Authorization": f"Bearer {key}"})

    try:
        server.request("POST", "/v0/topics/a", {"records": [{"data": 1}]}, {"Authorization": "Bearer all"})
        assert get("/v0/topics/a/segments", "reader").status == 200
        assert get("/v0/topics/a/segments", "some").status == 403
        assert get("/v0/topics/a/segments", "writer").status == 403
        assert get("/v0/topics/a/ledger", "some").status == 200
        assert get("/v0/topics/b/ledger", "some").status == 403
    finally:
        server.stop()
