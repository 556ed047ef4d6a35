"""Writers, readers, workers, routers and upkeep of a simulated server: each draws its next step by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.crash.effects import Match
from tests.crash.forwarding import pull, route
from tests.crash.keys import KEYS
from tests.crash.lives import REBORN, remove_cursor, set_cursor
from tests.crash.staging import Staging
from tests.crash.verify import check_running
from tests.crash.watchers import Watcher
from tests.crash.world import World
from topics.core.clock import ManualClock

CLASSES = ("fsync", "disk", "memory", "ephemeral")
TAGS = (None, None, "x", "y", "xy")
MATCHES: tuple[Match, ...] = (("Eq", "x"), ("Eq", "y"), ("Glob", "x"))
# Those who commit stages under the same id: a key without prefixes, and two with some.
OWNERS = ("", "d", "d|f|m")
LEAPS_MS = (1, 20, 200, 700)
DAY_MS = 86_400_000
# How a clock may be set: by so little that it is waited for, or by more, in both directions.
STEPS_MS = (-300, -300, -20_000, -10 * DAY_MS, 20_000, 10 * DAY_MS)
# Not as far as that cursors which nobody uses are forgotten.
FARTHEST_MS = 12 * DAY_MS


def set_clock(clock: ManualClock, rng: random.Random) -> None:
    step = rng.choice(STEPS_MS)
    far = clock.now_ms() + step - ManualClock().now_ms()
    clock.step(-step if abs(far) > FARTHEST_MS else step)


# A writer empties a topic that has grown beyond this, so that worlds stay small and quick to compare.
MANY_RECORDS = 60


# How often each step is taken, relative to the others.
WEIGHTS = {
    "append fsync": 20,
    "append disk": 26,
    "append memory": 8,
    "append ephemeral": 6,
    "write together": 16,
    "delete by seq": 3,
    "delete by tag": 4,
    "delete some": 3,
    "seal": 0.3,
    "snapshot": 0.7,
    "rotate": 0.4,
    "write ahead": 0.6,
    "drop segment": 0.2,
    "cold move": 0.2,
    "forward": 4,
    "claim": 4,
    "ack": 4,
    "stage commit": 0.3,
    "configure": 0.5,
    "rebirth": 0.7,
    "watch": 2,
    "cursor": 2,
    "read": 12,
    "set clock": 0.7,
    "fill disk": 0.4,
    "free disk": 1,
}


class Actors:
    """The steps of one world. `operation` names what the last one did, for the table of faults."""

    def __init__(self, world: World, rng: random.Random, staging: Staging) -> None:
        self.world = world
        self.rng = rng
        self.staging = staging
        self.operation = ""
        self._batches: Counter[str] = Counter()
        # What the last commit of each owner brought.
        self._staged: dict[str, dict[str, list[Any]]] = {}
        self._held: dict[str, list[int]] = {"jobs": [], "safe-jobs": [], "brief-jobs": []}
        self.watchers = [Watcher(name) for name in "abc"]
        self._furnish()
        self.logs = [*CLASSES, "capped", "aging", "safe-capped", "small", "plain", "safe-plain"]
        self.copies = ["copies", "safe-copies", "chosen", "farther"]
        self.queues = ["jobs", "safe-jobs"]
        # No deletion by tag: after a kill it cannot be told from a loss, because tags are lost, too.
        self.all_queues = [*self.queues, "brief-jobs"]
        self.steps: dict[str, Callable[[], None]] = {
            **{f"append {durability}": self._appender(durability) for durability in CLASSES},
            "write together": self.write_together,
            "delete by seq": self.delete_by_seq,
            "delete by tag": self.delete_by_tag,
            "delete some": self.delete_some,
            "seal": lambda: world.checkpoint(everything=True),
            "snapshot": world.checkpoint,
            "rotate": world.rotate,
            "write ahead": self.write_ahead,
            "drop segment": self.drop_segment,
            "cold move": self.move_cold,
            "forward": self.forward,
            "claim": self.claim,
            "ack": self.ack,
            "stage commit": self.stage,
            "configure": self.configure,
            "rebirth": self.rebirth,
            "watch": self.watch,
            "cursor": self.move_cursor,
            "read": self.read,
            "set clock": self.set_clock,
            "fill disk": world.fill,
            "free disk": world.make_room,
        }

    def _furnish(self) -> None:
        world, rng = self.world, self.rng
        for durability in CLASSES:
            world.put(durability, durability=durability)
        world.put("capped", cap_records=rng.choice([3, 9, 30]))
        world.put("safe-capped", cap_bytes=rng.choice([40, 400]), durability="fsync")
        world.put("aging", ttl_ms=500)
        world.put("small", ttl_ms=900, cap_records=20, durability="fsync")
        for name, durability in (("copies", "disk"), ("safe-copies", "fsync"), ("chosen", "memory")):
            world.put(name, durability=durability)
        world.put("farther")
        world.put("plain")
        world.put("safe-plain", durability="fsync")
        world.put(REBORN)
        world.put("jobs", type="queue", leases_durable=rng.random() < 0.5, lease_ms=1000, cap_records=12)
        world.put(
            "safe-jobs", type="queue", durability="fsync", leases_durable=rng.random() < 0.5, ttl_ms=1500
        )
        world.put("brief-jobs", type="queue", durability="ephemeral")
        world.commit()
        route(world, "plain", "disk", "copies")
        route(world, "safe", "fsync", "safe-copies")
        route(world, "filtered", "memory", "chosen", ("Glob", "x"))
        route(world, "onward", "copies", "farther")
        world.commit()

    # --- steps ------------------------------------------------------------------------------------------

    def _drafts(self) -> list[Any]:
        rng = self.rng
        count = rng.choice((1, 1, 1, 2, 3, 8))
        return [self.world.draft(rng.choice(TAGS), padding=rng.choice((0, 0, 9, 90))) for _ in range(count)]

    def _appender(self, durability: str) -> Callable[[], None]:
        names = {
            "fsync": ["fsync", "safe-capped", "small", "safe-jobs"],
            "disk": ["disk", "capped", "aging", "jobs"],
            "ephemeral": ["ephemeral", "brief-jobs"],
        }
        choices = names.get(durability, [durability])

        def append() -> None:
            name = self.rng.choice(choices)
            topic = self.world.engine.find(name)
            if topic is not None and topic.live_count > MANY_RECORDS:
                self.world.delete(name, before=topic.head - 5)
            self.world.append(name, self._drafts(), self.rng.choice((None, None, *KEYS)))

        return append

    def write_together(self) -> None:
        """Append single records without a tag to several topics in one turn, with keys or without."""
        world, rng = self.world, self.rng
        others = rng.sample(("disk", "fsync", "memory", "ephemeral", "capped", "small", "jobs"), 1)
        sent: dict[str, list[Any]] = {}
        for name in rng.sample(("plain", "safe-plain", *others), rng.choice((1, 2, 3))):
            topic = world.engine.find(name)
            if topic is not None and topic.live_count > MANY_RECORDS:
                world.delete(name, before=topic.head - 5)
            is_keyed, count = rng.random() < 0.4, rng.choice((1, 1, 2, 4))
            drafts = [world.draft(padding=rng.choice((0, 0, 9, 90))) for _ in range(count)]
            sent[name] = [(draft, rng.choice(KEYS) if is_keyed else None) for draft in drafts]
        world.append_together(sent)

    def _some_topic(self) -> str:
        return self.rng.choice((*self.logs, *self.logs, *self.copies, *self.queues))

    def delete_by_seq(self) -> None:
        name = self._some_topic()
        topic = self.world.engine.find(name)
        if topic is not None:
            self.world.delete(name, before=topic.floor + self.rng.randrange(8))

    def delete_by_tag(self) -> None:
        name = self._some_topic()
        topic = self.world.engine.find(name)
        if topic is not None:
            before = None if self.rng.random() < 0.5 else topic.head - self.rng.randrange(6)
            self.world.delete(name, before=before, match=self.rng.choice(MATCHES))

    def delete_some(self) -> None:
        """Seqs by name, now and then those that carry a tag only."""
        name = self._some_topic()
        topic = self.world.engine.find(name)
        if topic is not None:
            reach = range(max(topic.floor - 2, 1), topic.assigned + 3)
            match = self.rng.choice((None, None, *MATCHES))
            self.world.delete(name, match=match, seqs=self.rng.choices(reach, k=self.rng.randint(1, 6)))

    def drop_segment(self) -> None:
        world = self.world
        world.delete(self._some_topic())
        world.commit()
        for _ in range(2):
            world.checkpoint()

    def move_cold(self) -> None:
        world = self.world
        if not world.move_cold():
            for _ in range(3):
                world.append("disk", [world.draft() for _ in range(6)])
                world.commit()
            world.checkpoint()
            world.move_cold()

    def forward(self) -> None:
        self.world.commit()
        pull(self.world, self.rng.choice(self.copies))

    def claim(self) -> None:
        name = self.rng.choice(self.all_queues)
        self._held[name] = self.world.claim(name, self.rng.choice((1, 2, 5)), "worker")

    def ack(self) -> None:
        name = self.rng.choice(self.all_queues)
        if not self._held[name]:
            self._held[name] = self.world.claim(name, 3, "worker")
        self.world.acknowledge(name, self._held[name], "worker")
        self._held[name] = []

    def write_ahead(self) -> None:
        self.world.write_ahead()
        if self.rng.random() < 0.7:
            self.world.rotate()

    def stage(self) -> None:
        """A batch, which is sent again now and then: with the same rows, and with others."""
        world, rng = self.world, self.rng
        owner, luck = rng.choice(OWNERS), rng.random()
        identity = (owner, "query", self._batches[owner])
        is_known = identity in world.model.commits
        if is_known and luck < 0.2:
            assert self.staging.commit(world, identity, self._staged[owner]) is not False
            return
        is_large = rng.random() < 0.5
        names = ("disk", "fsync", "memory", *(("capped", "aging") if is_large else ()))
        rows = {name: self._drafts() for name in rng.sample(names, 2)}
        if is_known and luck < 0.4:
            assert self.staging.commit(world, identity, rows) is not True
            return
        self._batches[owner] += 1
        self._staged[owner] = rows
        identity = (owner, "query", self._batches[owner])
        self.staging.commit(world, identity, rows, is_large=is_large, meanwhile=self._interfere)

    def _interfere(self) -> None:
        """While a large commit is written."""
        for name in self.rng.sample(("disk", "fsync", "memory", "capped"), 2):
            self.world.append(name, self._drafts())
        if self.rng.random() < 0.3:
            self.world.delete(self.rng.choice(("disk", "fsync")), match=self.rng.choice(MATCHES))

    def configure(self) -> None:
        world, rng = self.world, self.rng
        choice = rng.random()
        if choice < 0.3:
            world.put("extra", durability=rng.choice(CLASSES))
            world.append("extra", self._drafts())
        elif choice < 0.5:
            world.commit()
            world.drop("extra")
        elif choice < 0.75:
            world.put("capped", cap_records=rng.choice([3, 9, 30, 0]))
        else:
            world.put("aging", ttl_ms=rng.choice([0, 300, 500, 2000]))

    def rebirth(self) -> None:
        """One instance behind the other, sometimes while the first is still on its way out."""
        world, rng = self.world, self.rng
        world.drop(REBORN)
        if rng.random() < 0.5:
            world.commit()
        if rng.random() < 0.8:
            world.put(REBORN, durability=rng.choice(CLASSES), cap_records=rng.choice((0, 0, 4)))
        world.commit()
        world.append(REBORN, self._drafts())

    def watch(self) -> None:
        """Some watchers have not been there for several lives."""
        self.world.commit()
        if self.rng.random() < 0.5:
            self.world.append(REBORN, self._drafts())
            self.world.commit()
        self.rng.choice(self.watchers).look(self.world)

    def move_cursor(self) -> None:
        """Of a topic that comes and goes, or of one that stays; sometimes of a life that is long over."""
        world, rng = self.world, self.rng
        name, consumer = rng.choice((REBORN, REBORN, "disk", "fsync")), rng.choice("abc")
        topic = world.engine.find(name)
        if topic is None or rng.random() < 0.3:
            remove_cursor(world, name, consumer)
        else:
            set_cursor(world, name, consumer, rng.randrange(topic.head + 1), rng.choice((topic.id, 1)))

    def read(self) -> None:
        """Whatever is still on its way to the disk is not seen."""
        if self.rng.random() < 0.5:
            self.world.commit()
        name = self._some_topic()
        if name in self.copies:
            pull(self.world, name)
        topic = self.world.engine.find(name)
        if topic is not None:
            check_running(self.world, name, self.rng.choice((0, topic.floor, topic.head)))

    def set_clock(self) -> None:
        """Now and then it is noticed at once, or by a reader; otherwise by the next step that looks."""
        world = self.world
        set_clock(world.clock, self.rng)
        luck = self.rng.random()
        if luck < 0.3:
            world.engine.now()
        elif luck < 0.6:
            self.read()

    # --- the mix ----------------------------------------------------------------------------------------

    def choose(self) -> str:
        return self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def step(self, operation: str) -> None:
        self.operation = operation
        self.steps[operation]()

    def settle(self) -> None:
        """After a step: all of it is committed, or some of it is left on its way."""
        rng, world = self.rng, self.world
        if rng.random() < 0.05:
            world.clock.advance(rng.choice(LEAPS_MS))
        luck = rng.random()
        if rng.random() < 0.2:
            world.look_for_room()
        if luck < 0.75:
            world.commit()
        elif luck < 0.9:
            world.finish_sync()
            world.queue.flush()
        elif luck < 0.94:
            world.begin_sync()
        elif luck < 0.98:
            world.begin_write()

    def forget(self) -> None:
        """The process is gone, and with it what workers held."""
        self._held = {name: [] for name in self._held}
