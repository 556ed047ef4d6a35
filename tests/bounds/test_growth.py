"""A client that requests everything, again and again under new names, makes nothing grow.

Bounds are lowered so that all of them are reached before the first count. The test counts what is in every
collection of every object of the server, and once more after as many requests again.
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.http.bulk import ARROW
from tests.http.streaming import RunningApp
from tests.support import Wire, eventually
from tests.support.arrow import arrow_stream

LOWERED = {
    "topics.log.remove.ledger.MAX_STRETCHES": 1,
    "topics.flow.cursors.MAX_CURSORS": 3,
    "topics.flow.cursors.MAX_LEFT_BEHIND": 3,
    "topics.flow.pins.MAX_VIEWS": 2,
    "topics.flow.pipelines.MAX_PIPELINES": 2,
    "topics.flow.queues.leases.STALE_TIMES": 2,
    "topics.flow.routers.copies.MAX_KEYS": 4,
    "topics.flow.routers.copies._FEW_KEYS": 2,
    "topics.flow.stages.identities.MAX_APPLICATIONS": 2,
    "topics.flow.stages.spool.MAX_PARTS": 2,
    "topics.http.admission.auth._REMEMBERED_HEADERS": 2,
    "topics.http.known_heads._MOST_HEADS": 2,
    "topics.http.routing._REMEMBERED_TARGETS": 2,
    "topics.log.lives.MAX_NAMES": 2,
    "topics.core.strict._MAX_PATTERNS": 1,
    "topics.log.remove.ledger.MAX_RANGES": 4,
}
ROUNDS = 12
COLLECTIONS = (array, bytearray, deque, dict, list, set)
# Bounds that are not reached here: TOPICS_HOT_BYTES for records in memory, a day for samples of the disk.
BOUNDED = ("HotColumns.", "HotRuns.", "FillRate.")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApp]:
    for name, value in LOWERED.items():
        monkeypatch.setattr(name, value)
    running = RunningApp(tmp_path, api_keys="all,some:rw:k", max_watch_sessions=2, max_idempotency_keys=2)
    yield running
    running.stop()


def counted() -> Counter[str]:
    """Return the number of things in the collections of all objects and modules of the server, by field."""
    gc.collect()
    # The server excludes long-lived objects from collection, and so from the list of objects.
    gc.unfreeze()
    found: Counter[str] = Counter()
    for owner in gc.get_objects():
        is_module = isinstance(owner, ModuleType)
        kind = type(owner)
        if not str(owner.__name__ if is_module else kind.__module__).startswith("topics."):
            continue
        slots = {slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ())}
        for field in slots.union(getattr(owner, "__dict__", ())):
            value = getattr(owner, field, None)
            if isinstance(value, COLLECTIONS):
                found[f"{owner.__name__ if is_module else kind.__name__}.{field}"] += len(value)
    return found


class Client:
    """Everything there is to ask for, under names that no one had before."""

    def __init__(self, app: RunningApp) -> None:
        self._app = app
        self._round = 0
        self._key = {"Authorization": "Bearer all"}
        for name in ("kept", "source", "jobs"):
            self._ask(
                "PUT",
                f"/v0/topics/{name}",
                {"cap_records": 20, "type": "queue"} if name == "jobs" else {"cap_records": 20},
            )
        router = {"source": "source", "dest": "kept", "guarantee": "exactly_once"}
        self._ask("PUT", "/v0/routers/kept", router)
        self._epoch = self._ask("GET", "/v0/topics/source").json["epoch"]

    def _ask(self, method, path, body=None, **headers):
        return self._app.call(method, path, body, **{**self._key, **headers})

    def everything(self) -> None:
        self._round += 1
        name = f"new-{self._round}"
        for step in (
            self._records,
            self._reads,
            self._streams,
            self._socket,
            self._queue,
            self._stage,
            self._rest,
        ):
            step(name)

    def _records(self, name: str) -> None:
        key = f"router:kept:{self._epoch}:{self._epoch}:{10_000 + self._round}"
        foreign = {
            "data": 1,
            "tag": "odd",
            "node": name,
            "meta": {"_topics_router": {"idempotency_key": key}},
        }
        for topic in ("kept", "source", name):
            self._ask("POST", f"/v0/topics/{topic}", {"records": [foreign, {"data": 2, "tag": name}] * 3})
            self._ask("POST", f"/v0/topics/{topic}/delete", {"match": "odd"})
        self._ask("POST", f"/v0/topics/{name}", {"records": [{"data": 1}], "idempotency_key": name})
        self._ask("PUT", f"/v0/routers/{name}", {"source": name, "dest": f"{name}-copy", "filter": "x*"})

    def _reads(self, name: str) -> None:
        self._ask("POST", "/v0/topics/kept/diff", {"node": [name], "wait_ms": 1, "from_seq": 0})
        self._ask("GET", "/v0/topics/kept/ledger?buckets=3")
        self._ask("POST", "/v0/topics/kept/scan", {"tag": name})
        self._ask("GET", "/v0/topics/kept/segments")
        self._ask("GET", f"/v0/no/such/{name}")
        self._ask("GET", "/v0/metrics")
        for consumer in (name, "steady"):
            self._ask("PUT", f"/v0/topics/{name}/cursors/{consumer}", {"seq": 1})
            self._ask("PUT", f"/v0/topics/kept/cursors/{consumer}", {"seq": 1})

    def _streams(self, name: str) -> None:
        answer = self._ask(
            "POST", "/v0/watch", {"topics": {"kept": {"tail": True}, name: {}}, "node": [name]}
        )
        if answer.status == 200:
            self._app.events(answer.json["wid"], **self._key)
        self._app.hang_up()

    def _socket(self, name: str) -> None:
        socket = self._app.socket(**self._key)
        socket.send(op="subscribe", topics={"kept": {"tail": True}, name: {}})
        socket.send(op="publish", topic=name, records=[{"data": name}])
        socket.send(op="unsubscribe", topic=name)
        while socket.read()["op"] != "unsubscribed":
            pass
        self._app.hang_up()

    def _queue(self, name: str) -> None:
        jobs = "/v0/topics/jobs"
        self._ask("POST", jobs, {"records": [{"data": n} for n in range(5)]})
        claimed = self._ask("POST", f"{jobs}/claim", {"node": name, "max": 4, "lease_ms": 60_000})
        seqs = [job["$seq"] for job in claimed.json["claimed"]]
        self._ask("POST", f"{jobs}/extend", {"node": name, "seqs": seqs, "lease_ms": 50_000})
        self._ask("POST", f"{jobs}/nack", {"node": name, "seqs": seqs[:1], "delay_ms": 5000})
        self._ask("POST", f"{jobs}/ack", {"node": name, "seqs": seqs[1:]})

    def _stage(self, name: str) -> None:
        rows = arrow_stream({"data": ["1"], "topic": ["kept"]})
        for part in "abc":
            with_key = {**self._key, "Content-Type": ARROW}
            wire = Wire(self._app.address)
            wire.request("PUT", f"/v0/stages/{name}/parts/{part}", rows, with_key)
            wire.close()
        identity = {"id": name, "batch": self._round}
        self._ask("POST", f"/v0/stages/{name}/commit", {"identity": identity, "parts": ["a"]})
        self._ask("DELETE", f"/v0/stages/{name}")

    def _rest(self, name: str) -> None:
        self._app.call("GET", "/v0/topics", Authorization=f"Bearer{' ' * self._round} all")
        self._app.call("GET", "/v0/topics", Authorization=f"Bearer {name}")
        for _ in range(2):
            # Known from the second request of a connection on.
            wire = Wire(self._app.address)
            for _ in range(3):
                wire.request(
                    "POST", "/v0/topics/kept", b'{"records":[{"data":1}]}', {**self._key, "X-Name": name}
                )
            wire.close()
        for topic in (name, f"{name}-copy"):
            self._ask("DELETE", f"/v0/topics/{topic}")


def test_nothing_grows(app: RunningApp) -> None:
    client = Client(app)
    for _ in range(ROUNDS):
        client.everything()
    before = settled(app)
    assert len(before) > 300
    for _ in range(ROUNDS):
        client.everything()
    after = settled(app)
    grown = {
        field: (before[field], count)
        for field, count in after.items()
        if count > before[field] and not field.startswith(BOUNDED)
    }
    assert not grown, grown


def settled(app: RunningApp) -> Counter[str]:
    """Count after all requests are done, and after a checkpoint, which forgets earlier changes."""
    eventually(lambda: not app.inside(lambda: app.app.server.context.open_connections))
    eventually(lambda: not app.inside(lambda: len(app.app.node.fanout.topics)))
    app.wait(app.app.node.upkeep.checkpoints.leave_journal())
    found: Counter[str] = app.inside(counted)
    return found
