"""Whatever happened to a log: purge and restore change nothing that can be read, and a check is content."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command import topics
from tests.engine.lab import NodeLab
from tests.flow.routers.lab import RouterLab
from tests.log.harness import Lab
from tests.ops.test_purge import found, purge
from topics.core.errors import ApiError
from topics.flow.watch.sessions import StreamPositions
from topics.log.read.render import Shape
from topics.log.topic import Topic
from topics.storage.filesystem import Filesystem

TAGGED = Shape(tags=True)
STEPS = 60


class Life:
    """A log to which things happen. Every record is marked, so that it can be found on disk."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.lab = RouterLab(directory / "data", segment_max_events=self.random.choice([3, 7, 50]))
        self.written = 0
        # Readers that come by now and then: the life and the place of each in every topic, and the id it has.
        self.readers: list[dict[str, Known]] = [{}, {}]

    def step(self) -> None:
        actions = {
            self.write: 12,
            self.delete: 5,
            self.checkpoint: 4,
            self.restart: 2,
            self.configure: 1,
            self.drop: 1,
            self.route: 1,
            self.forward: 2,
            self.read: 4,
        }
        self.random.choices(list(actions), list(actions.values()))[0]()

    def name(self) -> str:
        return self.random.choice(["a", "b", "c"])

    def existing(self) -> str | None:
        names = list(self.lab.engine.names_after("", ""))
        return self.random.choice(names) if names else None

    def write(self) -> None:
        name, records = self.name(), []
        for _ in range(self.random.randint(1, 6)):
            self.written += 1
            fields: dict[str, Any] = {"data": {"mark": f"<{self.written}>"}}
            if self.random.random() < 0.7:
                fields["tag"] = f"tag{self.random.randint(0, 4)}"
            if self.random.random() < 0.3:
                fields |= {"node": "n", "meta": {"m": f"<{self.written}>"}}
            records.append(fields)
        self.lab.clock.advance(self.random.randint(0, 50))
        self.lab.write(name, *records)

    def delete(self) -> None:
        name = self.existing()
        if name is not None:
            head = self.lab.topic(name).head
            if self.random.random() < 0.5:
                self.lab.delete(name, match=f"tag{self.random.randint(0, 4)}")
            else:
                self.lab.delete(name, before=self.random.randint(0, head + 1))

    def checkpoint(self) -> None:
        self.lab.checkpoint(everything=self.random.random() < 0.3)

    def restart(self) -> None:
        self.lab.restart(clean=self.random.random() < 0.5)

    def configure(self) -> None:
        durability = self.random.choice(["disk", "fsync", "memory"])
        self.lab.put(self.name(), cap_records=self.random.choice([0, 0, 9]), durability=durability)

    def drop(self) -> None:
        name = self.existing()
        if name is not None:
            self.lab.drop(name)

    def route(self) -> None:
        source, dest = self.random.sample(["a", "b", "c"], 2)
        with suppress(ApiError):  # a topic is fed from one other at most
            self.lab.route(f"{source}-{dest}", source, dest, allow_cycle=True)

    def forward(self) -> None:
        self.lab.background()

    # --- looking ----------------------------------------------------------------------------------------

    def read(self) -> None:
        name = self.existing()
        if name is not None:
            reader = self.random.choice(self.readers)
            come_back(self.lab, name, reader.get(name))
            topic = self.lab.topic(name)
            here = at_the_end(topic)
            reader[name] = Known(topic.head, topic.id, here.event_id())

    def marks(self) -> set[str]:
        return {f"<{number}>" for number in range(1, self.written + 1)}


class Known(NamedTuple):
    seq: int
    epoch: int
    id: bytes


def at_the_end(topic: Topic) -> StreamPositions:
    places = StreamPositions()
    places.put(topic.name, topic.head, topic.id, first_life=topic.first_life)
    return places


def come_back(lab: Lab, name: str, known: Known | None) -> None:
    """By its number or by its id: a reader from another life is told, and no other."""
    topic = lab.topic(name)
    if known is None:
        return
    place = at_the_end(topic).rewound(known.id, lambda _: topic.id)
    for seq, epoch in ((known.seq, known.epoch), (place.seqs[name], place.epochs[name])):
        gap = lab.diff(name, seq, epoch=epoch).tombstone
        is_told = gap is not None and gap.reason == "recreated"
        assert is_told is (known.epoch != topic.id), f"{name}: at {known} in {topic.id}"


def content(lab: Lab, *, with_epoch: bool = True) -> dict[str, Any]:
    """What is there, without what routers still owe."""
    found = {}
    if isinstance(lab, RouterLab):
        lab.pulls = False
    for name in lab.engine.names_after("", ""):
        state = lab.state(name)
        if not with_epoch:
            del state["epoch"]
        found[name] = (state, rows(lab, name))
    if isinstance(lab, RouterLab):
        lab.pulls = True
    return found


def rows(lab: Lab, name: str) -> bytes:
    """Everything, past the gaps that end a page."""
    parts, from_seq, caught_up = [], 0, False
    while not caught_up:
        page = lab.diff(name, from_seq, shape=TAGGED, max_bytes=8 << 20)
        parts.append(page.rows)
        from_seq, caught_up = page.next_from_seq, page.caught_up
    return b"".join(parts)


def live_text(lab: Lab) -> str:
    return "".join(text.decode() for _, text in content(lab).values())


@pytest.mark.parametrize("seed", range(3))
def test_a_life(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(seed, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_lives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(seed, tmp_path, monkeypatch)


def live(seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Filesystem, "boot_id", lambda _: b"boot-1")
    life = Life(directory, seed)
    for _ in range(3):
        for _ in range(life.random.randint(5, STEPS)):
            life.step()
        _check_backup(life)
        _check_purge(life)


def _check_purge(life: Life) -> None:
    before, alive = content(life.lab), live_text(life.lab)
    purge(life.lab)
    assert content(life.lab) == before
    gone = [mark for mark in life.marks() if mark not in alive]
    assert found(life.lab.directory, *gone) == []
    life.lab.restart()
    assert content(life.lab) == before


def _check_backup(life: Life) -> None:
    before = content(life.lab, with_epoch=False)
    life.lab.stop() if life.random.random() < 0.5 else life.lab.kill()
    checked = topics("check", life.lab.directory, "--json")
    assert checked.json["clean"], checked.output
    taken = topics("backup", life.directory / "backups", "--data-dir", life.lab.directory, "--json")
    assert taken.code == 0, taken.errors
    target = life.directory / f"restored-{taken.json['name']}"
    restored = topics("restore", life.directory / "backups", target, "--json")
    assert restored.code == 0, restored.errors
    again = NodeLab(target)
    assert content(again, with_epoch=False) == before
    for reader in life.readers:
        for name in reader.keys() & before.keys():
            assert again.topic(name).id > reader[name].epoch
            come_back(again, name, reader[name])
    again.stop()
    checked = topics("check", target, "--json")
    assert checked.json["clean"], checked.output
    life.lab.open()
    assert content(life.lab, with_epoch=False) == before
