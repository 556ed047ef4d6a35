"""A backup taken while a server writes as fast as it can: restored, it has every acknowledged record."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import topics
from tests.engine.lab import NodeLab
from tests.support import ServerProcess, Wire
from topics.cli import backup as backup_verb

BATCH = 100
DOOMED_EVERY = 7


@dataclass
class Writer:
    """One topic, one connection, one batch after the other. Numbers are its own, seqs are the server's."""

    topic: str
    durability: str
    address: tuple[str, int]
    sent: int = 0
    # By seq of its first record: the number of that record. Only what was acknowledged.
    acked: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    failure: BaseException | None = None

    def run(self, stop: threading.Event) -> None:
        try:
            wire = Wire(self.address)
            wire.request("PUT", f"/v0/topics/{self.topic}", b'{"durability":"%b"}' % self.durability.encode())
            while not stop.is_set():
                self._write(wire)
                if len(self.acked) % DOOMED_EVERY == 0:
                    self._delete(wire)
            wire.close()
        except BaseException as error:
            self.failure = error

    def _write(self, wire: Wire) -> None:
        first, self.sent = self.sent, self.sent + BATCH
        records = [
            {"data": {"n": n, "pad": "x" * 80}, "tag": f"b{first}", "meta": {"n": n}}
            for n in range(first, first + BATCH)
        ]
        answer = wire.request("POST", f"/v0/topics/{self.topic}", json.dumps({"records": records}).encode())
        assert answer.status == 200, answer.body
        self.acked[answer.json["first_seq"]] = first

    def _delete(self, wire: Wire) -> None:
        first = (self.sent // BATCH // 2) * BATCH
        body = json.dumps({"match": f"b{first}"}).encode()
        assert wire.request("POST", f"/v0/topics/{self.topic}/delete", body).status == 200
        self.deleted.add(first)

    def promised(self) -> tuple[dict[int, int], set[int]]:
        return dict(self.acked), set(self.deleted)


def audit(lab: NodeLab, writer: Writer, promised: tuple[dict[int, int], set[int]]) -> int:
    """Every record where it was acknowledged, none that was never sent, none that was deleted before."""
    acked, deleted = promised
    topic = lab.topic(writer.topic)
    present: dict[int, int] = {}
    page_from = 0
    while True:
        page = lab.diff(writer.topic, page_from, 1000, 8 << 20)
        assert page.tombstone is None
        for line in page.rows.splitlines():
            record = json.loads(line)
            assert record["data"]["n"] == record["meta"]["n"] < writer.sent
            present[record["$seq"]] = record["data"]["n"]
        if page.caught_up:
            break
        page_from = page.next_from_seq
    assert len(set(present.values())) == len(present)
    for first_seq, first in acked.items():
        assert first_seq + BATCH - 1 <= topic.head
        found = [present.get(seq) for seq in range(first_seq, first_seq + BATCH)]
        if first in deleted:
            assert found == [None] * BATCH
        elif first in writer.deleted:
            assert found in ([None] * BATCH, list(range(first, first + BATCH)))  # while it was taken
        else:
            assert found == list(range(first, first + BATCH))
    # What came while the backup was taken is there as it was acknowledged, or not at all.
    for first_seq, first in writer.acked.items():
        for offset in range(BATCH):
            assert present.get(first_seq + offset, first + offset) == first + offset
    assert topic.live_count == len(present)
    return len(present)


@pytest.fixture
def server(tmp_path: Path) -> Any:
    process = ServerProcess(
        tmp_path,
        TOPICS_SEGMENT_MAX_EVENTS="2000",
        TOPICS_HOT_BYTES="1000000",
        TOPICS_SEGMENT_MAX_AGE_MS="500",
    ).start()
    yield process
    process.kill()


def test_every_acknowledged_record_is_in_it(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_verb, "RENEW_S", 0.01)
    classes = ["fsync", "disk", "memory", "fsync"]
    writers = [Writer(f"{name}{i}", name, server.host_and_port) for i, name in enumerate(classes)]
    stop = threading.Event()
    threads = [threading.Thread(target=writer.run, args=(stop,)) for writer in writers]
    for thread in threads:
        thread.start()
    taken: list[tuple[str, list[Any]]] = []
    try:
        for _ in range(2):
            stop.wait(1.0)
            promised = [writer.promised() for writer in writers]
            outcome = topics("backup", tmp_path / "backups", "--url", server.url, "--json")
            assert outcome.code == 0, outcome.errors
            taken.append((outcome.json["name"], promised))
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    server.kill()
    assert topics("check", tmp_path / "data", "--json").json["clean"]
    for writer in writers:
        assert writer.failure is None, writer.failure
        assert len(writer.acked) > 20
        assert writer.deleted
    for number, (name, promised) in enumerate(taken):
        target = tmp_path / f"restored{number}"
        outcome = topics("restore", tmp_path / "backups", target, "--backup", name, "--json")
        assert outcome.code == 0, outcome.errors
        restored = NodeLab(target)
        total = sum(audit(restored, w, p) for w, p in zip(writers, promised, strict=True))
        assert total == outcome.json["records"] > 0
        restored.stop()
        checked = topics("check", target, "--json")
        assert checked.json["findings"] == []
