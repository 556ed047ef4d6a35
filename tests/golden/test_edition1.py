"""Data directories and a backup that the first edition left behind are read as it would have read them.

Only what outsiders see is used here: the command line and HTTP. How the files were made: edition1/make.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import topics
from tests.golden.edition1.make import ARROW, DAY_MS
from tests.golden.edition1.reading import EDITION, Facts, copied, kept, seen
from tests.support import ServerProcess, eventually
from tests.support.arrow import arrow_stream

KINDS = ("stopped", "killed")

Start = Callable[[str], ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def make(kind: str) -> ServerProcess:
        started.append(copied(kind, tmp_path).start())
        return started[-1]

    yield make
    for server in started:
        server.stop()


def told(server: ServerProcess) -> Facts:
    """All that is said, but when something was last written where no record is kept: nobody notes that."""
    facts = seen(server)
    del facts["topics"]["fleeting"]["state"]["last_write_ts"]
    return facts


def kept_and_told_since(name: str) -> Facts:
    """What the first edition said, with what a topic's state says in addition by now."""
    facts = kept(name)
    for topic in facts["topics"].values():
        topic["state"]["idempotency_kept_ms"] = topic["state"]["config"]["idempotency_window_ms"]
    return facts


def expected(kind: str) -> Facts:
    """What the server said before it ended, but for records that only memory had."""
    facts = kept_and_told_since(f"{kind}/expected.json")
    fleeting = facts["topics"]["fleeting"]
    del fleeting["state"]["last_write_ts"]
    fleeting["state"] |= {"earliest_seq": 6, "count": 0, "bytes": 0}
    fleeting["ledger"] |= {"earliest_seq": 6, "ranges": [{"from": 1, "to": 5, "kind": "lost"}]}
    fleeting["records"] = []
    (gap,) = fleeting["gaps"]
    gap |= {"gap_to": 5, "missed_estimate": 5, "earliest_seq": 6}
    return facts


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wrong_with_it(kind: str, tmp_path: Path) -> None:
    directory = copied(kind, tmp_path).data_dir
    outcome = topics("check", directory, "--cold-dir", tmp_path / "cold", "--json")
    assert outcome.code == 0, outcome.output + outcome.errors
    assert outcome.json["clean"]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_there(kind: str, start: Start) -> None:
    """Again after a restart, when it comes from files that today's code has written over these."""
    server = start(kind)
    assert told(server) == expected(kind)
    server.stop()
    server.start()
    assert told(server) == expected(kind)


def test_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    """Every record is there, and seqs that may have been given out and lost are announced as before."""
    server = copied("killed", tmp_path, rebooted=True).start()
    try:
        found = seen(server)
    finally:
        server.stop()
    assert found == kept_and_told_since("killed/rebooted.json")
    before = expected("killed")["topics"]
    assert {name: facts["records"] for name, facts in found["topics"].items()} == {
        name: facts["records"] for name, facts in before.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_writes_go_on_behind_the_heads(kind: str, start: Start) -> None:
    server = start(kind)
    before = expected(kind)["topics"]
    copies = {"vip", "vip-copy", "full"}
    for name in before.keys() - copies:
        record = {"data": "new", "tag": "vip:3"}
        first = server.post(f"/v0/topics/{name}", {"records": [record]})["first_seq"]
        assert first == before[name]["state"]["head_seq"] + 1, name
    # The order passes two routers, and nothing that they had copied before is copied again.
    after = seen(server)["topics"]
    for name in ("vip", "vip-copy"):
        *known, new = after[name]["records"]
        assert known == before[name]["records"]
        assert (new["$seq"], new["data"]) == (before[name]["state"]["head_seq"] + 1, "new")
    refused = server.request("POST", "/v0/topics/full", {"records": [{"data": 0}]})
    refused.refused(422, "topic_full")


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_router_goes_on(kind: str, start: Start) -> None:
    """It had no room for the last record of its source, and none of those it has copied comes again."""
    server = start(kind)
    server.post("/v0/topics/full/delete", {"before_seq": 4})
    full = "/v0/topics/full/diff"
    eventually(lambda: server.post(full, {"from_seq": 3})["head_seq"] == 7)
    page = server.post(full, {"from_seq": 5})
    assert [(r["$seq"], r["data"]) for r in page["records"]] == [(6, 6), (7, 7)]


@pytest.mark.parametrize("kind", KINDS)
def test_leases_are_held(kind: str, start: Start) -> None:
    """Time stands still on these directories, see make.py."""
    server = start(kind)

    def ask(verb: str, node: str, **more: Any) -> Any:
        return server.post(f"/v0/topics/jobs/{verb}", {"node": node, **more})

    # 4 and 5 are leased, 6 is held back for a day: the others are to be had.
    claimed = ask("claim", "w3", max=10, lease_ms=DAY_MS)["claimed"]
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in claimed] == [(7, "g", 1), (8, "h", 1)]
    assert ask("ack", "w3", seqs=[4])["skipped"] == [4]
    assert ask("ack", "w1", seqs=[4])["acked"] == 1
    assert ask("nack", "w1", seqs=[5, 6])["skipped"] == [6]
    (again,) = ask("claim", "w3")["claimed"]
    assert (again["$seq"], again["deliveries"]) == (5, 2)
    # Deliveries of before count: it has now been delivered as often as it may be.
    ask("nack", "w3", seqs=[5])
    assert ask("claim", "w3", max=10)["claimed"] == []
    (letter,) = server.post("/v0/topics/jobs-dead/diff", {"from_seq": 2})["records"]
    assert (letter["data"], letter["meta"]["$dead_letter_src_seq"]) == ("e", "5")


@pytest.mark.parametrize("kind", KINDS)
def test_committed_stages_are_remembered(kind: str, start: Start) -> None:
    server = start(kind)

    def commit(stage: str, batch: int) -> Any:
        body = {"identity": {"id": "nightly", "batch": batch}, "parts": ["0"]}
        return server.request("POST", f"/v0/stages/{stage}/commit", body)

    def put(stage: str, **columns: list[Any]) -> None:
        server.request("PUT", f"/v0/stages/{stage}/parts/0", arrow_stream(columns), ARROW).ok()

    # The same rows in another stage and another order, as a driver that was started again sends them.
    put("again-1", topic=["audit", "numbers"], data=['"x"', "-1"], tag=["t", None])
    put("again-2", topic=["numbers", "new"], data=["-2", "[2]"], node=["n", None])
    first, second = commit("again-1", 1).ok(), commit("again-2", 2).ok()
    assert first["deduped"]
    assert first["topics"] == {
        "numbers": {"first_seq": 41, "last_seq": 41, "count": 1},
        "audit": {"first_seq": 1, "last_seq": 1, "count": 1},
    }
    assert second["deduped"]
    assert second["topics"]["numbers"]["first_seq"] == 42
    put("other", topic=["numbers"], data=["9"])
    commit("other", 2).refused(409, "stage_conflict")
    # Rows that were staged then can be committed now.
    waiting = {"numbers": {"first_seq": 43, "last_seq": 43, "count": 1, "epoch": 4}}
    assert commit("waiting", 3).ok()["topics"] == waiting
    (record,) = server.post("/v0/topics/numbers/diff", {"from_seq": 42})["records"]
    assert (record["data"], record["meta"]) == (-3, {"m": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_committed_stages_are_found_by_keys_that_may_name_their_topics(kind: str, start: Start) -> None:
    """There were no owners then; who could have made a commit finds it, and for others it never was."""
    keys = {"all": "", "exact": "audit|new|numbers", "first": "audit|numbers", "other": "o"}
    entries = ",".join(f"{key}:rw:{prefixes}" for key, prefixes in keys.items())
    server = start(kind)
    server.stop()
    server.start(TOPICS_API_KEYS=entries)

    def commit(key: str, batch: int, parts: list[str]) -> Any:
        body = {"identity": {"id": "nightly", "batch": batch}, "parts": parts}
        return server.request("POST", "/v0/stages/s/commit", body, {"Authorization": f"Bearer {key}"})

    for key, known in (("all", (1, 2)), ("exact", (1, 2)), ("first", (1,))):
        for batch in known:
            answer = commit(key, batch, ["went with the commit"]).ok()
            assert answer["deduped"]
            assert answer["topics"]["numbers"]["first_seq"] == 40 + batch
            commit(key, batch, []).refused(409, "stage_conflict")
        commit(key, 0, []).refused(409, "stage_conflict")
    assert not commit("first", 2, []).ok()["deduped"]
    assert not commit("other", 1, []).ok()["deduped"]
    # None of them has changed what was there.
    assert commit("exact", 2, ["went with the commit"]).ok()["topics"]["numbers"]["first_seq"] == 42


def test_a_cold_directory_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    """Its records must not be taken for lost, which would be announced for good."""
    server = copied("stopped", tmp_path)
    outcome = topics("check", server.data_dir, "--json")
    assert outcome.code == 1
    assert not outcome.json["clean"]


def test_the_backup_is_restored(tmp_path: Path) -> None:
    backups = shutil.copytree(EDITION / "backups", tmp_path / "backups")
    verified = topics("backup", backups, "--verify", "--json")
    assert verified.code == 0, verified.output + verified.errors
    restored = topics("restore", backups, tmp_path / "data", "--same-history", "--json")
    assert restored.code == 0, restored.output + restored.errors
    server = ServerProcess(tmp_path).start()
    try:
        assert told(server) == expected("stopped")
    finally:
        server.stop()
