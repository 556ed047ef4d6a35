"""Writers on many connections of a real server, whose requests come in one and the same turn of its loop.

    python -m tests.model.traffic --turns 2000 --seed 1 [--sanitised | --codec python] [--small-disk]

The server is stopped while requests are sent to it, so that it finds all of them at once: small writes with
and without idempotency keys, retries in the turn of the first write, bundles, what is not plain, deletes, and
caps that come and go, topics that go and come again; now and then it is killed, or its disk is full. Among
writers of one turn nobody promises an order. All else that was answered is held against plain dictionaries.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.servers import sanitise
from tests.kill.small_disk import SmallDisk, mounted
from tests.model.wires import Wires, Write, request
from tests.support import ServerProcess, sanitised
from topics import codec

CONFIGS: dict[str, dict[str, Any]] = {
    "disk": {},
    "fsync": {"durability": "fsync"},
    "memory": {"durability": "memory"},
    "capped": {"cap_records": 7},
    "passing": {"durability": "ephemeral"},
    "changing": {},
    "mortal": {},
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"durability": "disk", "cap_records": 0},
    {"durability": "fsync", "cap_records": 0},
    {"durability": "disk", "cap_records": 9},
    {"durability": "ephemeral", "cap_records": 0},
)
WRITERS = 24
# Behind the connections of writers: one that deletes and changes, and one that waits for new records.
OTHER, WAITING = WRITERS, WRITERS + 1
WAIT_MS = 400
# For so long a key is sure to be remembered.
SURE_S = 60.0
LONG_AGO = -1e9
# How many records at the end of a topic are looked at after every turn.
LATELY = 60
# What a server answers that has no room.
REFUSED = (503, 507)
SMALL_DISK_MIB = 28
# The environment of a server, by its codec.
WAYS: dict[str, dict[str, str]] = {
    "native": {codec.SWITCH: ""},
    "python": {codec.SWITCH: "python"},
    "sanitised": {},
}


@dataclass
class Life:
    """A topic from when it was made until it is deleted."""

    records: dict[int, str] = field(default_factory=dict)
    # What retries are told, and since when.
    keys: dict[str, tuple[int, float]] = field(default_factory=dict)
    # Those of writes that nobody was told of.
    doubtful_keys: set[str] = field(default_factory=set)
    head: int = 0
    # Below it, records may be gone: deleted, or over a cap; and below this one they are.
    floor: int = 1
    deleted: int = 1

    def rise(self, floor: int) -> None:
        self.floor = max(self.floor, floor)


class Traffic:
    def __init__(self, server: ServerProcess, seed: int, disk: SmallDisk | None = None) -> None:
        self.server = server
        self.counts: Counter[str] = Counter()
        self._disk = disk
        self._is_full = False
        # Nothing but writes comes in this turn.
        self._is_calm = True
        # Topics of which records may be gone after a kill.
        self._volatile = {"passing"}
        self._random = random.Random(seed)
        self._number = 0
        self._configs = {name: dict(config) for name, config in CONFIGS.items()}
        self._lives: dict[str, dict[int, Life]] = {name: {} for name in CONFIGS}
        for name, config in CONFIGS.items():
            assert server.request("PUT", f"/v0/topics/{name}", config).status == 201
        self._connect()

    def close(self) -> None:
        self._wires.close()

    def _connect(self) -> None:
        self._wires = Wires(self.server.host_and_port, WRITERS + 2)

    def run(self, turns: int) -> None:
        for number in range(turns):
            self._turn()
            for name in CONFIGS:
                self._check(name, is_whole=number % 100 == 99 or number == turns - 1)

    # --- what is sent -----------------------------------------------------------------------------------

    def _value(self) -> str:
        """Like no other."""
        self._number += 1
        return f"{self._number}" + "x" * self._random.choice((0, 0, 3, 40, 900))

    def _write(self) -> Write:
        chance = self._random
        name, value, luck = chance.choice(list(CONFIGS)), self._value(), chance.random()
        key = f"k{chance.randrange(60)}" if chance.random() < 0.4 else None
        if luck < 0.85:
            return Write(name, b'{"records":[{"data":"%b"}]}' % value.encode(), [value], key)
        if luck < 0.9:
            return Write(name, json.dumps({"records": [{"data": value, "tag": "t"}]}).encode(), [value], key)
        if luck < 0.95:
            both = [value, self._value()]
            return Write(name, json.dumps({"records": [{"data": one} for one in both]}).encode(), both, key)
        return Write(name, b'{"records":[{"data":"%b}]}' % value.encode(), None, key)

    def _writes(self) -> list[Write]:
        """Of one connection: mostly one; or several, and then as a rule to one topic."""
        chance = self._random
        writes = [self._write() for _ in range(1 if chance.random() < 0.9 else chance.choice((2, 5)))]
        if chance.random() < 0.7:
            for write in writes:
                write.name = writes[0].name
        return writes

    def _turn(self) -> None:
        chance = self._random
        if self._disk is not None and chance.random() < 0.04:
            (self._disk.free if self._is_full else self._disk.fill)(self.server)
            self._is_full = not self._is_full
        some = chance.sample(range(WRITERS), chance.choice((1, 3, 8, 20, WRITERS)))
        sent = {at: self._writes() for at in some}
        other = self._other() if chance.random() < 0.2 else None
        waiting = self._wait() if chance.random() < 0.2 else None
        ends = not self._is_full and chance.random() < 0.01
        with self._stopped(ends=ends):
            for at, writes in sent.items():
                self._wires.send(at, b"".join(write.text() for write in writes))
            if other is not None:
                self._wires.send(OTHER, other[0])
        wanted = {at: len(writes) for at, writes in sent.items()}
        wanted |= {OTHER: 1} if other is not None else {}
        answers = self._wires.answers(wanted | ({} if waiting is None else {WAITING: 1}))
        for at, writes in sent.items():
            for write, answer in zip(writes, answers[at], strict=False):
                write.status, write.answer = answer
        self._is_calm = other is None
        unanswered = self._judge([write for writes in sent.values() for write in writes])
        assert ends or not unanswered, f"without an answer: {unanswered}"
        if other is not None:
            self._judge_other(other, answers[OTHER], is_known=not ends)
        if ends:
            self._start_again(unanswered)
        if waiting is not None and answers[WAITING]:
            self._judge_waiting(waiting, *answers[WAITING][0])
        self.counts["turns"] += 1

    @contextmanager
    def _stopped(self, *, ends: bool) -> Iterator[None]:
        """The server finds all of this at once. `ends`: and is killed before it has done with it."""
        self.server.signal(signal.SIGSTOP)
        yield
        self.server.signal(signal.SIGCONT)
        if ends:
            time.sleep(self._random.random() * 0.01)
            self.server.kill()
            self.counts["kills"] += 1

    def _other(self) -> tuple[bytes, str, Any]:
        """Something that is not a write: the request, the topic, and what it means."""
        luck = self._random.random()
        if luck < 0.4:
            name = self._random.choice([name for name in CONFIGS if name != "mortal"])
            life = self._present(name)
            before = 1 if life is None else self._random.randrange(life.floor, max(life.floor, life.head) + 1)
            body = json.dumps({"before_seq": before}).encode()
            return request("POST", f"/v0/topics/{name}/delete", body), name, before
        if luck < 0.8:
            config = self._random.choice(CHANGES)
            body = json.dumps(config).encode()
            return request("PUT", "/v0/topics/changing", body), "changing", config
        return request("DELETE", "/v0/topics/mortal"), "mortal", None

    def _wait(self) -> tuple[str, int, int]:
        """A reader waits for what comes to a topic: its name, its life, and where the reader is."""
        name = self._random.choice(("disk", "fsync", "memory"))
        epoch, life = max(self._lives[name].items(), default=(0, Life()))
        body = json.dumps({"from_seq": life.head, "wait_ms": WAIT_MS, "limit": 1000}).encode()
        self._wires.send(WAITING, request("POST", f"/v0/topics/{name}/diff", body))
        return name, epoch, life.head

    # --- what is answered -------------------------------------------------------------------------------

    def _present(self, name: str) -> Life | None:
        return max(self._lives[name].items(), default=(0, None))[1]

    def _judge(self, writes: list[Write]) -> list[Write]:
        """Those without an answer."""
        touched: dict[tuple[str, int], set[int]] = {}
        for write in sorted(writes, key=lambda write: write.is_written and write.answer["deduped"]):
            self.counts[f"{write.status}"] += 1
            if write.is_written:
                life = self._lives[write.name].setdefault(write.answer["epoch"], Life())
                new = self._told(life, write)
                touched.setdefault((write.name, write.answer["epoch"]), set()).update(new)
            elif write.status:
                expected = (400, *REFUSED) if write.data is None else REFUSED
                assert write.status in expected, f"{write}: an answer that nobody expected"
                assert write.status == 400 or self._disk is not None, write
        unanswered = [write for write in writes if not write.status]
        for (name, epoch), seqs in touched.items():
            life = self._lives[name][epoch]
            if unanswered:
                life.head = max([life.head, *seqs])
            else:
                assert seqs == set(range(life.head + 1, life.head + 1 + len(seqs))), f"{name}: gaps in {seqs}"
                life.head += len(seqs)
            self._cap(life, self._configs[name])
        return unanswered

    def _told(self, life: Life, write: Write) -> set[int]:
        """The new seqs that an answer tells of."""
        answer, key, now = write.answer, write.key, time.monotonic()
        assert write.data is not None, f"{write} cannot have been written"
        known = None if key is None else life.keys.get(key)
        if answer["deduped"]:
            if known is None:
                assert key in life.doubtful_keys, f"{write}: nobody has used this key"
                life.keys[str(key)] = answer["first_seq"], LONG_AGO
            else:
                assert answer["first_seq"] == known[0], f"{write}: {known} was written with this key"
            self.counts["deduped"] += 1
            return set()
        is_capped = self._configs[write.name].get("cap_records")
        is_sure = known is not None and known[0] >= life.floor and now - known[1] < SURE_S
        is_sure = is_sure and self._is_calm and not is_capped
        assert not is_sure, f"{write}: a retry was written again, {known}"
        seqs: list[int] = answer["seqs"]
        assert seqs == list(range(seqs[0], seqs[0] + len(write.data))), write
        assert life.records.keys().isdisjoint(seqs), f"{write}: a seq is given out twice"
        life.records.update(zip(seqs, write.data, strict=True))
        if key is not None:
            life.keys[key] = seqs[0], now
        return set(seqs)

    @staticmethod
    def _cap(life: Life, config: dict[str, Any]) -> None:
        most = config.get("cap_records")
        if most:
            life.rise(life.head - most + 1)

    def _judge_other(
        self, other: tuple[bytes, str, Any], answers: list[tuple[int, Any]], *, is_known: bool
    ) -> None:
        _, name, meant = other
        status, life = answers[0][0] if answers else 0, self._present(name)
        self.counts[f"other {status}"] += 1
        if is_known:
            assert status in (200, 201, 404, *(REFUSED if self._disk is not None else ())), answers
        if isinstance(meant, int) and life is not None:
            life.rise(meant)
            if status == 200:
                life.deleted = max(life.deleted, meant)
        elif isinstance(meant, dict) and life is not None:
            # While it changes, either may hold.
            for config in (self._configs[name], meant):
                self._cap(life, config)
                if config.get("durability") == "ephemeral":
                    self._volatile.add(name)
            if status not in REFUSED:
                self._configs[name] = meant

    def _judge_waiting(self, waiting: tuple[str, int, int], status: int, page: Any) -> None:
        name, epoch, behind = waiting
        assert status == 200, page
        life = self._lives[name].get(epoch)
        if life is None or page["epoch"] != epoch or life.floor > behind:
            return
        seqs = [record["$seq"] for record in page["records"]]
        assert seqs == list(range(behind + 1, behind + 1 + len(seqs))), f"{name}: read {seqs} behind {behind}"
        assert bool(seqs) == (life.head > behind), f"{name}: nobody told who waited behind {behind}"
        self.counts["woken"] += bool(seqs)

    # --- what is there ----------------------------------------------------------------------------------

    def _state(self, name: str) -> tuple[int, int] | None:
        """Epoch and head, if there is such a topic."""
        answer = self.server.request("GET", f"/v0/topics/{name}?touch=false")
        assert answer.status in (200, 404), answer.body
        return None if answer.status == 404 else (answer.json["epoch"], answer.json["head_seq"])

    def _found(self, name: str, behind: int) -> dict[int, str]:
        found: dict[int, str] = {}
        while True:
            page = self.server.post(f"/v0/topics/{name}/diff", {"from_seq": behind, "limit": 1000})
            found |= {record["$seq"]: record["data"] for record in page["records"]}
            behind = page["next_from_seq"]
            if page["caught_up"]:
                return found

    def _check(self, name: str, *, is_whole: bool) -> None:
        state = self._state(name)
        if state is None:
            assert name == "mortal", f"{name} is gone"
            self._lives[name].clear()
            return
        epoch, head = state
        life = self._lives[name].setdefault(epoch, Life())
        self._lives[name] = {epoch: life}
        assert head == life.head, f"{name}: the head is {head}, and not {life.head}"
        behind = life.floor - 1 if is_whole else max(head - LATELY, life.floor - 1)
        found = self._found(name, 0 if is_whole else behind)
        for seq in range(behind + 1, head + 1):
            assert found.get(seq) == life.records[seq], f"{name}: {seq} is {found.get(seq)}"
        for seq, data in found.items():
            assert life.records[seq] == data, f"{name}: {seq} is {data}"
            assert seq >= life.deleted, f"{name}: {seq} was deleted"
        most = self._configs[name].get("cap_records")
        assert not most or len(found) <= most, f"{name}: {sorted(found)} in spite of a cap of {most}"

    def _start_again(self, unanswered: list[Write]) -> None:
        """After a kill. What was not answered is there as a whole, once, or not at all."""
        self._wires.close()
        self.server.start()
        self._connect()
        for name in CONFIGS:
            state = self._state(name)
            if state is None:
                continue
            life = self._lives[name].setdefault(state[0], Life())
            self._meet(life, self._found(name, 0), [one for one in unanswered if one.name == name])
            life.head = state[1]
            if name in self._volatile:
                life.rise(life.head + 1)
                life.keys = {key: (seq, LONG_AGO) for key, (seq, _) in life.keys.items()}
            self._cap(life, self._configs[name])
        self._volatile = {"passing"}
        changed = self.server.request("PUT", "/v0/topics/changing", self._configs["changing"])
        assert changed.status == 200, changed.body
        if self._configs["changing"].get("durability") == "ephemeral":
            self._volatile.add("changing")

    @staticmethod
    def _meet(life: Life, found: dict[int, str], unanswered: list[Write]) -> None:
        life.doubtful_keys.update(write.key for write in unanswered if write.key is not None)
        sent = {data: write for write in unanswered for data in write.data or ()}
        news = {data: seq for seq, data in found.items() if seq not in life.records}
        for data, seq in news.items():
            write = sent.get(data)
            assert write is not None, f"{data} was written by nobody"
            assert write.data is not None
            life.records[seq] = data
            if data == write.data[0] and write.key is not None:
                life.keys[write.key] = seq, time.monotonic()
        assert len(news) == len(set(news.values())), "a record is there twice"
        for write in unanswered:
            there = [news.get(data) for data in write.data or ()]
            assert None not in there or not any(there), f"{write}: only a part is there"


def drive(
    directory: Path, way: str, turns: int, seed: int, *, small_disk: bool = False
) -> Counter[str] | None:
    """What was done; None if there can be no small disk. Fails where the model does, or memory is misused."""
    server = ServerProcess(directory, **WAYS[way])
    if way == "sanitised":
        sanitise(server)
    with ExitStack() as stack:
        disk = None
        if small_disk:
            place = directory / "small"
            if not stack.enter_context(mounted(place, SMALL_DISK_MIB)):
                return None
            disk = SmallDisk(place)
            server.environment["TOPICS_DATA_DIR"] = str(place / "data")
        stack.callback(server.kill)
        traffic = Traffic(server.start(), seed, disk)
        stack.callback(traffic.close)
        try:
            traffic.run(turns)
        except (AssertionError, OSError) as error:
            raise AssertionError(f"{way}, seed {seed}: {error}\n{server.log()[-4000:]}") from error
        assert not sanitised.reported(server.log()), "\n".join(sanitised.reported(server.log()))
        return traffic.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small-disk", action="store_true", help="which runs full now and then; for root")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--codec", dest="way", choices=("native", "python"), default="native")
    way.add_argument("--sanitised", dest="way", action="store_const", const="sanitised")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        counts = drive(Path(directory), given.way, given.turns, given.seed, small_disk=given.small_disk)
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
