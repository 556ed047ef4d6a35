"""Routers of a world: what a step of theirs is going to do, told before it is done."""

from __future__ import annotations

from operator import itemgetter

from tests.crash.effects import Added, Did, Match, Record
from tests.crash.model import Event, RouterModel
from tests.crash.world import World
from tests.model.reference import matches
from topics.flow.routers.definitions import RouterOptions
from topics.flow.routers.step import read_window
from topics.log.topic import Topic


def route(world: World, name: str, source: str, dest: str, match: Match | None = None) -> None:
    if name in world.model.routers or world.engine.find(source) is None or world.engine.find(dest) is None:
        return
    routers, topic = world.model.routers, world.topic(source)
    made = RouterModel(name, world.model_of(source), world.model_of(dest), match, topic.assigned)
    event = world.model.event(Did(lambda: routers.__setitem__(name, made), lambda: routers.pop(name)))
    options = RouterOptions()
    if match is not None:
        options = RouterOptions(filter_value=match[1], filter_is_prefix=match[0] == "Glob")
    world.submit(
        event,
        lambda: world.here.routers.put(
            name, source, dest, options, lambda *_: world.ack_synced(event), world.failing(event)
        ),
    )


def pull(world: World, name: str) -> None:
    """Bring a destination up to date, as every reader of it does."""
    topic = world.engine.find(name)
    if topic is None or world.queue.refusals.failure is not None:
        return
    world.finish_sync()
    world.queue.flush()
    routers = [r for r in world.model.routers.values() if r.dest.id == topic.id]
    actuals = world.here.routers.table.into(topic)
    before = actuals[0].cursor if actuals else 0
    event = _forwarding(world, topic, routers[0]) if routers else None
    world.here.routers.pull(topic)
    if event is not None and world.queue.refusals.failure is None:
        actual = world.here.routers.table.into(topic)[0]
        if world.queue.refusals.refusal is not None and actual.cursor == before:
            # There was no room for it: it is made later, and not half-made now.
            assert actual.sent == before
            world.model.refuse(event)
            return
        world.ack(event, None, topic)
        assert actual.cursor == routers[0].cursor, "forwarding stopped half-way"


def _forwarding(world: World, dest: Topic, router: RouterModel) -> Event | None:
    """What a step is going to do."""
    engine, source = world.engine, world.engine.by_id[router.source.id]
    actual = world.here.routers.table.named(router.name)
    if actual is None or not actual.committed or actual.sent >= source.head or not source.committed:
        return None
    router.source.expire(engine.now())
    before, after = actual.sent, source.head
    moved = Did(lambda: setattr(router, "cursor", after), lambda: setattr(router, "cursor", before))
    window = read_window(source, before, 1000, 1 << 20, after)
    added = _copies(world, dest, router, before, [(first, last) for first, last, _ in window.lost])
    return world.model.event(*([] if added is None else [added]), moved)


def _copies(
    world: World, dest: Topic, router: RouterModel, after: int, lost: list[tuple[int, int]]
) -> Added | None:
    """Copies in the order of the source, and a hole for every stretch of it that is lost."""
    now, seq = world.engine.now(), dest.assigned
    ts = max(now, dest.last_ts)
    router.dest.expire(now)
    volatile = dest.config.durability == "ephemeral"
    wanted = [r for r in router.source.live.values() if r.seq > after and matches(r.tag, router.match)]
    copies: list[Record] = []
    trimmed = 0
    items: list[tuple[int, Record | int]] = [*((record.seq, record) for record in wanted), *lost]
    for first, item in sorted(items, key=itemgetter(0)):
        if isinstance(item, Record):
            seq += 1
            copies.append(item.copy_at(seq, ts, is_volatile=volatile))
        else:
            seq += item - first + 1
            if not copies and not router.dest.live:
                trimmed = seq
    return Added(router.dest, copies, now, seq, trimmed) if seq > dest.assigned else None
