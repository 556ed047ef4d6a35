"""A furnished world, and every operation that changes its disk: each is to be stopped behind every change."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.crash.drafts import Draft
from tests.crash.forwarding import pull, route
from tests.crash.keys import KEYS
from tests.crash.lives import REBORN, remove_cursor, set_cursor
from tests.crash.staging import Staging
from tests.crash.verify import check_running
from tests.crash.watchers import Watcher
from tests.crash.world import World

CLASSES = ("fsync", "disk", "memory", "ephemeral")


def furnished(rng: random.Random) -> World:
    """Topics of every class and kind with records in memory, in segments of both tiers, and on their way."""
    world = World(rng)
    for durability in CLASSES:
        world.put(durability, durability=durability)
    world.put("capped", cap_records=9)
    world.put("aging", ttl_ms=500)
    for name, durability in (("copies", "disk"), ("safe-copies", "fsync"), ("chosen", "disk")):
        world.put(name, durability=durability)
    world.put("jobs", type="queue", leases_durable=True)
    world.put("safe-jobs", type="queue", durability="fsync", cap_records=9)
    world.put("brief-jobs", type="queue", durability="ephemeral")
    world.commit()
    route(world, "plain", "disk", "copies")
    route(world, "safe", "fsync", "safe-copies")
    route(world, "filtered", "memory", "chosen", ("Glob", "x"))
    world.commit()
    for turn in range(3):
        for name in (*CLASSES, "capped", "aging", "jobs", "safe-jobs", "brief-jobs"):
            drafts = [world.draft(tag, padding=turn) for tag in (None, "x", "xy", "y")]
            world.append(name, drafts, KEYS[turn] if turn < 2 else None)
        world.commit()
        for name in ("copies", "safe-copies", "chosen"):
            pull(world, name)
        if turn == 0:
            world.checkpoint(everything=True)
            world.delete("disk", match=("Eq", "y"))
            world.delete("fsync", before=3)
        if turn == 1:
            world.clock.advance(600)
            world.checkpoint()
            world.checkpoint(everything=True)
            world.move_cold()
    world.commit()
    # Some of it no sync has covered, and some nobody has been told of.
    world.append("disk", [world.draft("x")])
    world.delete("memory", match=("Eq", "y"))
    world.commit()
    world.append("fsync", [world.draft("y")])
    world.queue.flush()
    return world


Operation = Callable[[World], object]


def _go_on(world: World) -> None:
    """What needs no sync is acknowledged, something else is written behind it, and then all is synced."""
    world.queue.flush()
    world.append("memory", [world.draft()])
    world.queue.flush()
    world.commit()


def _append(durability: str) -> Operation:
    def operate(world: World) -> None:
        world.append(durability, [world.draft("x", "n"), world.draft()])
        _go_on(world)

    return operate


def _append_keyed(world: World) -> None:
    """A key that is new, one that comes again while its write is on its way, and one that a snapshot has."""
    for name in ("disk", "fsync"):
        world.append(name, [world.draft("x"), world.draft()], KEYS[2])
        world.append(name, [world.draft()], KEYS[2])
        world.append(name, [world.draft()], KEYS[0])
    _go_on(world)
    world.checkpoint()
    world.append("disk", [world.draft()], KEYS[2])
    world.append("disk", [world.draft()], KEYS[3])
    world.commit()


def _write_together(world: World) -> None:
    """Plain records, with and without keys, to topics of two classes; and some to one that has a cap."""
    for name, durability in (("plain", "disk"), ("safe-plain", "fsync")):
        world.put(name, durability=durability)
    world.commit()
    for keys in ((None, None), (None, None), (KEYS[0], KEYS[1]), (KEYS[2], KEYS[2]), (KEYS[0], KEYS[3])):
        sent: dict[str, list[tuple[Draft, str | None]]] = {
            "capped": [(world.draft(), None)],
            "safe-plain": [(world.draft(), key) for key in keys],
            "plain": [(world.draft(), None), (world.draft(), None)],
        }
        world.append_together(sent)
        if keys[1] != KEYS[1]:
            world.commit()
    _go_on(world)


def _write_together_to_a_full_disk(world: World) -> None:
    """The disk takes a part of the requests of a turn; with room again, another turn follows."""
    for name, durability in (("plain", "disk"), ("safe-plain", "fsync")):
        world.put(name, durability=durability)
        world.append(name, [world.draft()])
    world.commit()
    world.commit()
    world.disk.fill(leaving=700)
    # More than the reserve can help with, in the end.
    for turn in range(20):
        names = ("plain", "safe-plain") if turn % 2 else ("safe-plain", "plain")
        world.append_together(
            {name: [(world.draft(padding=3000), None), (world.draft(padding=9), None)] for name in names}
        )
        world.queue.flush()
    world.commit()
    assert world.queue.refusals.refusal is not None
    world.make_room()
    world.append_together({name: [(world.draft(), KEYS[0])] for name in ("plain", "safe-plain")})
    _go_on(world)


def _append_many(world: World) -> None:
    """So many that a reservation has to be made first."""
    world.append("disk", [world.draft() for _ in range(300)])
    _go_on(world)


def _delete(name: str, before: int | None, tag: str | None, seqs: list[int] | None = None) -> Operation:
    def operate(world: World) -> None:
        world.delete(name, before=before, match=None if tag is None else ("Eq", tag), seqs=seqs)
        _go_on(world)

    return operate


def _write_ahead(world: World) -> None:
    """Twice: the second file takes the place of one that is not used up."""
    for _ in range(2):
        world.write_ahead()
        world.rotate()
        world.append("disk", [world.draft("x")])
        world.append("fsync", [world.draft("y")])
        _go_on(world)
    world.append("fsync", [world.draft()])
    world.commit()


def _rotate(world: World) -> None:
    world.rotate()
    for name in ("disk", "fsync"):
        world.append(name, [world.draft()])
        world.commit()


def _drop_segments(world: World) -> None:
    """Files go when two snapshots do without them."""
    for name in ("disk", "fsync", "memory", "copies", "safe-copies"):
        world.delete(name)
    world.commit()
    for _ in range(3):
        world.append("disk", [world.draft()])
        world.commit()
        world.checkpoint(everything=True)


def _flip_flags(world: World) -> None:
    """A deletion from sealed files is written into them after the second snapshot."""
    world.checkpoint(everything=True)
    world.delete("fsync", match=("Eq", "x"))
    world.commit()
    for _ in range(3):
        world.append("disk", [world.draft()])
        world.commit()
        world.checkpoint()


def _cold(world: World) -> None:
    for _ in range(2):
        world.append("fsync", [world.draft("x") for _ in range(6)])
        world.commit()
    world.checkpoint()
    assert world.move_cold(), "nothing to move"


def _forward(world: World) -> None:
    for source in ("disk", "fsync", "memory"):
        world.append(source, [world.draft("x"), world.draft("y")])
    world.commit()
    for dest in ("copies", "safe-copies", "chosen"):
        pull(world, dest)
    world.delete("copies", match=("Eq", "x"))
    world.commit()


def _work(world: World) -> None:
    for name in ("jobs", "safe-jobs"):
        taken = world.claim(name, 3, "worker")
        assert len(taken) == 3
        world.acknowledge(name, taken[:2], "worker")
        _go_on(world)


def _lose_jobs(world: World) -> None:
    """Some are finished, a cap takes others, and a worker is told; then it takes more."""
    for name in ("safe-jobs", "brief-jobs"):
        world.acknowledge(name, world.claim(name, 2, "worker"), "worker")
        world.put(name, type="queue", durability=world.topic(name).config.durability, cap_records=6)
        world.commit()
        world.claim(name, 1, "worker")
        world.append(name, [world.draft() for _ in range(3)])
        _go_on(world)


def _stage(world: World) -> None:
    staging = Staging()
    try:
        rows = {"disk": [world.draft("x"), world.draft()], "fsync": [world.draft()]}
        for owner in ("", "d|m"):
            assert staging.commit(world, (owner, "query", 1), rows) is False
            assert staging.commit(world, (owner, "query", 1), rows) is True
            assert staging.commit(world, (owner, "query", 1), rows, stage="of another driver") is True
    finally:
        staging.close()


def _adopt(world: World) -> None:
    """Rows that go into segments, with others that come to the same topics meanwhile, and to another."""
    staging = Staging()

    def others() -> None:
        for name in ("disk", "fsync", "memory"):
            world.append(name, [world.draft("y")])
        world.delete("disk", match=("Eq", "x"))

    try:
        rows = {"disk": [world.draft("x"), world.draft()] * 3, "fsync": [world.draft("xy")], "capped": []}
        rows["capped"] = [world.draft() for _ in range(12)]
        assert staging.commit(world, ("", "query", 1), rows, is_large=True, meanwhile=others) is False
        assert staging.commit(world, ("", "query", 1), rows, is_large=True) is True
    finally:
        staging.close()
    _go_on(world)
    world.checkpoint()
    world.delete("fsync", match=("Eq", "xy"))
    _go_on(world)


def _adopt_and_drop(world: World) -> None:
    """What was adopted goes again, with its files."""
    staging = Staging()
    try:
        rows = {"memory": [world.draft("x") for _ in range(3)]}
        assert staging.commit(world, ("", "query", 1), rows, is_large=True) is False
    finally:
        staging.close()
    world.delete("memory")
    world.commit()
    for _ in range(3):
        world.append("disk", [world.draft()])
        world.commit()
        world.checkpoint()


def _configure(world: World) -> None:
    world.put("disk", cap_records=4)
    world.put("new", durability="fsync")
    world.commit()
    world.drop("memory")
    world.commit()


def _rebirth(world: World) -> None:
    """A topic, another one of its name, and a cursor that has seen both and then none."""
    watcher = Watcher("w")
    world.put(REBORN)
    world.commit()
    for _ in range(2):
        world.append(REBORN, [world.draft(), world.draft()])
        world.commit()
        watcher.look(world)
        set_cursor(world, REBORN, "w", 2, world.topic(REBORN).id)
        world.commit()
        world.drop(REBORN)
        world.put(REBORN, durability="fsync")
        _go_on(world)
    watcher.look(world)
    world.checkpoint()
    world.drop(REBORN)
    world.commit()
    remove_cursor(world, REBORN, "w")
    _go_on(world)


def _age(world: World) -> None:
    world.clock.advance(400)
    world.append("aging", [world.draft()])
    world.commit()
    world.clock.advance(200)
    check_running(world, "aging")
    world.append("fsync", [world.draft()])
    world.commit()


def _append_to_a_full_disk(world: World) -> None:
    """The disk runs full within a group; half of it had arrived. What is refused then is sent again."""
    world.append("fsync", [world.draft()])
    world.queue.flush()
    # More than the reserve can help with.
    world.disk.fill(leaving=60_000)
    for name in ("disk", "fsync", "memory", "copies"):
        world.append(name, [world.draft("x", padding=40_000) for _ in range(2)])
    _go_on(world)
    assert world.queue.refusals.refusal is not None
    world.make_room()
    world.append("disk", [world.draft()])
    _go_on(world)


def _remove_on_a_full_disk(world: World) -> None:
    world.commit()
    world.disk.fill()
    world.append("fsync", [world.draft()])
    assert world.delete("fsync", before=6)
    world.queue.flush()
    assert world.engine.writes_off is not None
    assert not world.append("disk", [world.draft()])
    assert world.delete("disk", match=("Eq", "x"))
    world.commit()
    world.drop("capped")
    world.put("disk", cap_records=4)
    taken = world.claim("safe-jobs", 2, "worker")
    world.acknowledge("safe-jobs", taken, "worker")
    _go_on(world)
    world.checkpoint()


OPERATIONS: dict[str, Operation] = {
    **{f"append {durability}": _append(durability) for durability in CLASSES},
    "append with a key": _append_keyed,
    "append with a reservation": _append_many,
    "write together": _write_together,
    "write together to a full disk": _write_together_to_a_full_disk,
    "append over a cap": _append("capped"),
    "delete by seq": _delete("disk", 6, None),
    "delete by seq, fsync": _delete("safe-copies", 6, None),
    "delete by tag": _delete("disk", None, "x"),
    "delete by tag, fsync": _delete("safe-copies", None, "x"),
    "delete some": _delete("disk", None, None, [2, 6, 7, 11]),
    "delete some jobs": _delete("jobs", 12, None, [1, 6, 7, 12]),
    "delete some of a tag, fsync": _delete("safe-copies", None, "x", [1, 2, 6, 7]),
    "append to a full disk": _append_to_a_full_disk,
    "remove on a full disk": _remove_on_a_full_disk,
    "seal": lambda world: world.checkpoint(everything=True),
    "snapshot": lambda world: world.checkpoint(),
    "rotate the journal": _rotate,
    "write the journal ahead": _write_ahead,
    "drop segments": _drop_segments,
    "flip flags": _flip_flags,
    "move to the cold tier": _cold,
    "forward": _forward,
    "claim and acknowledge": _work,
    "lose jobs": _lose_jobs,
    "stage and commit": _stage,
    "stage and commit into segments": _adopt,
    "adopt segments and drop them": _adopt_and_drop,
    "configure, create and drop": _configure,
    "drop and make again": _rebirth,
    "age": _age,
}
