"""A topic that is dropped and made again, and named cursors that outlive it."""

from __future__ import annotations

from tests.crash.effects import Effect
from tests.crash.model import NamedCursors
from tests.crash.world import World

REBORN = "reborn"
# No topic ever had this name.
UNHEARD_OF = "unheard-of"


class CursorMoved(Effect):
    """`place` None: the cursor was removed."""

    __slots__ = ("_before", "_cursors", "_name", "_place")

    def __init__(self, cursors: NamedCursors, name: tuple[str, str], place: tuple[int, int] | None) -> None:
        self._cursors = cursors
        self._name = name
        self._place = place
        self._before: tuple[int, int] | None = None

    def apply(self) -> None:
        self._before = self._cursors.get(self._name)
        self._set(self._place)

    def undo(self) -> None:
        self._set(self._before)

    def _set(self, place: tuple[int, int] | None) -> None:
        if place is None:
            self._cursors.pop(self._name, None)
        else:
            self._cursors[self._name] = place


def set_cursor(world: World, topic: str, consumer: str, seq: int, epoch: int) -> None:
    target = world.engine.find(topic)
    if target is not None:
        event = world.model.event(CursorMoved(world.model.cursors, (topic, consumer), (seq, epoch)))
        put = world.here.cursors.put
        world.submit(
            event,
            lambda: put(
                target, consumer, seq, epoch, lambda *_: world.ack_unsynced(event), world.failing(event)
            ),
        )


def remove_cursor(world: World, topic: str, consumer: str) -> None:
    """Whether or not the topic is there."""
    cursors = world.here.cursors
    if cursors.find(topic, consumer) is not None:
        event = world.model.event(CursorMoved(world.model.cursors, (topic, consumer), None))
        world.submit(
            event,
            lambda: cursors.drop(topic, consumer, lambda _: world.ack_unsynced(event), world.failing(event)),
        )


def check_lives(world: World) -> None:
    """After a restart: which topics came after another of their name, and which names are taken for new."""
    model, engine = world.model, world.engine
    for known in model.topics.values():
        topic = engine.by_id[known.id]
        assert topic.first_life is known.first_life, f"{known.name} is in another life than it was"
    for name in model.gone_names - engine.by_name.keys():
        assert not engine.lives.is_first(name), f"{name} was there before, and is forgotten"
    assert engine.lives.is_first(UNHEARD_OF)


def named_cursors(world: World) -> NamedCursors:
    found = world.here.cursors.walk()
    return {(topic, one.consumer): (one.seq, one.epoch) for topic, one in found if one is not None}
