"""Watchers that come back, to a topic that was dropped and made again, or to a server that crashed."""

from __future__ import annotations

from tests.crash.lives import REBORN
from tests.crash.verify import check_running
from tests.crash.world import World
from topics.flow.watch.sessions import StreamPositions
from topics.log import read_page


class Watcher:
    """Keeps the id of the last frame that it got, like a browser. What it stands for is kept to check it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._id = b""
        self._seq = self._epoch = 0

    def look(self, world: World) -> int | None:
        """Everything since the last time; returns where it stands now, None while there is no topic.

        What it comes to is a stream that would begin at the end: only its id can take that back.
        """
        topic = world.engine.find(REBORN)
        if topic is None or world.queue.refusals.failure is not None:
            return None
        here = _at_the_end(topic.head, topic.id, first_life=topic.first_life)
        there = here.rewound(self._id, lambda _: topic.id) if self._id else here
        begin, epoch = there.seqs[REBORN], there.epochs[REBORN]
        if not self._id:
            assert (begin, epoch) == (topic.head, topic.id)
        elif self._epoch == topic.id:
            assert (begin, epoch) == (self._seq, topic.id), "an id of this life is not understood"
        else:
            assert self._epoch < topic.id, "an epoch was given out twice"
            page = read_page(world.engine, topic, begin, 1000, 1 << 20, epoch=epoch)
            assert page.tombstone is not None, "a watcher of another life is not told"
            assert page.tombstone.reason == "recreated"
            begin = page.tombstone.gap_to
            assert begin == topic.floor - 1, "records of this life are passed over"
        check_running(world, REBORN, begin)
        self._seq, self._epoch = topic.head, topic.id
        self._id = _at_the_end(topic.head, topic.id, first_life=topic.first_life).event_id()
        return self._seq


def _at_the_end(head: int, epoch: int, *, first_life: bool) -> StreamPositions:
    places = StreamPositions()
    places.put(REBORN, head, epoch, first_life=first_life)
    return places
