"""Stages and identities belong to an owner, and are bounded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server
from tests.support import Answer
from tests.support.arrow import arrow_stream

KEYS = "all,also-all:w,a:w:a.,b:w:b.,both:w:a.|b.,turned:w:b.|a."
ARROW = "application/vnd.apache.arrow.stream"
LAST_BATCH = 2**64 - 1


class Tenant:
    """What the holder of a key does with stages."""

    def __init__(self, server: Server, key: str) -> None:
        self._server = server
        self._key = {"Authorization": f"Bearer {key}"}

    def put(self, topic: str, *data: str, stage: str = "load", part: str = "0") -> Answer:
        path = f"/v0/stages/{stage}/parts/{part}?topic={topic}"
        rows = arrow_stream({"data": list(data)})
        return self._server.send("PUT", path, rows, **self._key, **{"Content-Type": ARROW})

    def commit(self, *parts: str, batch: int = 0, stage: str = "load", identity: str = "q") -> Answer:
        body = {"identity": {"id": identity, "batch": batch}, "parts": list(parts)}
        return self._server.send("POST", f"/v0/stages/{stage}/commit", body, **self._key)

    def drop(self, stage: str = "load") -> Any:
        return self._server.send("DELETE", f"/v0/stages/{stage}", **self._key).ok()["deleted"]

    def metric(self, name: str) -> float:
        text = self._server.send("GET", "/v0/metrics", **self._key).body.decode()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.fixture
def server(boot: Boot) -> Server:
    return boot(TOPICS_API_KEYS=KEYS)


def deduped(answer: Answer) -> bool:
    found: bool = answer.ok()["deduped"]
    return found


def test_a_tenant_cannot_touch_the_stage_of_another(server: Server) -> None:
    a, b, everyone = Tenant(server, "a"), Tenant(server, "b"), Tenant(server, "all")
    b.put("b.t", "1").ok()
    for stranger in (a, everyone):
        assert stranger.drop() is False
        stranger.commit("0").refused(404, "not_found")
    # Not even when it chooses the same names: these are a part and a stage of its own.
    a.put("a.t", "2").ok()
    assert a.drop() is True
    a.put("a.t", "3").ok()
    assert a.commit("0").ok()["topics"] == {"a.t": {"first_seq": 1, "last_seq": 1, "count": 1, "epoch": 1}}
    assert b.commit("0").ok()["topics"] == {"b.t": {"first_seq": 1, "last_seq": 1, "count": 1, "epoch": 2}}


def test_a_tenant_cannot_burn_the_identity_of_another(server: Server) -> None:
    a, b = Tenant(server, "a"), Tenant(server, "b")
    assert not deduped(a.commit(batch=LAST_BATCH))
    assert deduped(a.commit(batch=LAST_BATCH))
    b.put("b.t", "1").ok()
    assert not deduped(b.commit("0"))
    for cleanly in (True, False):
        server.restart(cleanly=cleanly)
        assert deduped(b.commit("0"))


def test_keys_with_the_same_prefixes_share_their_stages(server: Server) -> None:
    for one, other in (("all", "also-all"), ("both", "turned")):
        Tenant(server, one).put("a.t", f'"{one}"').ok()
        assert not deduped(Tenant(server, other).commit("0"))
        assert deduped(Tenant(server, one).commit("0"))


def test_the_last_hundred_batches_and_no_older_ones(server: Server) -> None:
    a = Tenant(server, "a")
    for batch in range(101):
        a.put("a.t", str(batch)).ok()
        assert not deduped(a.commit("0", batch=batch))
    server.restart(cleanly=False)
    a.commit("0", batch=0).refused(409, "stage_conflict")
    for batch in (1, 100):
        again = a.commit("0", batch=batch).ok()
        assert again["deduped"]
        assert again["topics"]["a.t"]["first_seq"] == batch + 1
        a.put("a.t", '"other"').ok()
        a.commit("0", batch=batch).refused(409, "stage_conflict")
        assert a.drop()
    # Without rows it would be another one as well.
    a.commit(batch=100).refused(409, "stage_conflict")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_repeat_that_lacks_parts_is_compared_with_what_was_committed(
    server: Server, restarts: bool
) -> None:
    """Whoever sends a commit again after its parts have gone names the same ones, and nothing else."""
    a = Tenant(server, "a")
    for part in ("0", "1"):
        a.put("a.t", part, part=part).ok()
    first = a.commit("0", "1", batch=1).ok()["topics"]
    if restarts:
        server.restart(cleanly=False)
    for _ in range(2):
        again = a.commit("0", "1", batch=1).ok()
        assert (again["deduped"], again["topics"]) == (True, first)
    # Nothing of these was in the commit, wherever they are missing.
    for stage in ("load", "other"):
        a.commit("7", batch=1, stage=stage).refused(409, "stage_conflict")
    a.put("a.t", "77", stage="other").ok()
    a.commit("0", "1", batch=1, stage="other").refused(409, "stage_conflict")
    a.put("a.t", "77").ok()
    a.commit("0", "1", batch=1).refused(409, "stage_conflict")
    # What was refused is still there, for a commit of its own.
    assert a.commit("0", batch=2, stage="other").ok()["topics"]["a.t"]["first_seq"] == 3
    a.put("a.t", "0").ok()
    assert deduped(a.commit("0", "1", batch=1))


def test_the_rows_of_a_repeat_may_be_in_other_parts_and_its_answer_may_be_lost_as_well(
    server: Server,
) -> None:
    """A driver that died after the commit stages its rows anew, and asks until it is answered."""
    a = Tenant(server, "a")
    a.put("a.t", "1", "2").ok()
    first = a.commit("0").ok()["topics"]
    a.put("a.t", "2", stage="anew", part="x").ok()
    a.put("a.t", "1", stage="anew", part="y").ok()
    for cleanly in (True, False, None):
        again = a.commit("y", "x", stage="anew").ok()
        assert (again["deduped"], again["topics"]) == (True, first)
        if cleanly is not None:
            server.restart(cleanly=cleanly)
    assert a.drop("anew") is False


def test_a_commit_of_nothing_is_remembered(server: Server) -> None:
    a = Tenant(server, "a")
    assert a.commit(batch=3).ok()["topics"] == {}
    assert deduped(a.commit(batch=3))
    a.put("a.t", "1").ok()
    a.commit("0", batch=3).refused(409, "stage_conflict")
    a.commit(batch=2).refused(409, "stage_conflict")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_applications_of_an_owner_are_remembered(server: Server) -> None:
    a, b, everyone = Tenant(server, "a"), Tenant(server, "b"), Tenant(server, "all")
    assert not deduped(b.commit(identity="b's own"))
    for number in range(10_000):
        assert not deduped(a.commit(identity=f"id-{number}"))
    assert deduped(a.commit(identity="id-0"))
    assert everyone.metric("topics_stage_applications_forgotten_total") == 0
    assert not deduped(a.commit(identity="one more"))
    assert everyone.metric("topics_stage_applications_forgotten_total") == 1
    assert everyone.metric("topics_stage_applications") == 10_001
    server.restart(cleanly=False)
    assert deduped(b.commit(identity="b's own"))
    for known in ("id-0", "id-2", "one more"):
        assert deduped(a.commit(identity=known))
    assert not deduped(a.commit(identity="id-1"))
