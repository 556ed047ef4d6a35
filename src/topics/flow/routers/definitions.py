"""Which routers there are: definitions, the graph they form, and what the journal has of routers.

A step tells which source seqs became which destination seqs, for all routers of one source that moved
together. It does not repeat the records. `carried` is the exception: records of which the journal will not
have the original any more when recovery reads it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from topics.core import ApiError, NameColumns, invalid, require_topic_name
from topics.log import TagMatch, Topic
from topics.storage import I64


class RouterOptions(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Everything about a router that may change during its life."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter_value: str | None = None
    filter_is_prefix: bool = False
    allow_cycle: bool = False
    exactly_once: bool = False

    @property
    def match(self) -> TagMatch | None:
        return None if self.filter_value is None else TagMatch(self.filter_value, self.filter_is_prefix)


class Definition(msgspec.Struct, array_like=True, gc=False):
    """A router as the journal has it; `cursor` is where it stands."""

    router: int
    name: str
    source: int
    dest: int
    options: RouterOptions
    cursor: int


@dataclass(slots=True, eq=False)
class Router:
    """One feeder, and how far it has come.

    `sent` runs ahead of `cursor` while a step is on its way to disk: everything up to `sent` is decided,
    everything up to `cursor` is visible in the destination.
    """

    id: int
    name: str
    source: Topic
    dest: Topic
    options: RouterOptions
    cursor: int
    sent: int = field(init=False)
    match: TagMatch | None = field(init=False)
    forwarded: int = 0
    committed: bool = False
    # Its end is on the way to disk: requests do not find it any more, and its name is free.
    leaving: bool = False
    is_blocked: bool = False
    # Size of the record that found no room: whatever takes its place waits for as much.
    wants_bytes: int = 1
    # Exactly once: keys of ours that a client wrote into the destination, and how far we looked.
    keys_scanned: int = field(init=False)
    keys_seen: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sent = self.cursor
        self.match = self.options.match
        self.keys_scanned = self.dest.assigned

    def change(self, options: RouterOptions) -> None:
        if options.exactly_once and not self.options.exactly_once:
            # No copy had a key before, so nothing up to here can be one of ours.
            self.keys_scanned = self.dest.assigned
        self.options = options
        self.match = options.match

    def step_back(self, sent: int, dest_assigned: int) -> None:
        """Its last step was refused; the destination has given out seqs up to there without it."""
        self.sent = sent
        self.keys_scanned = min(self.keys_scanned, dest_assigned)

    def definition(self, options: RouterOptions, cursor: int) -> Definition:
        return Definition(self.id, self.name, self.source.id, self.dest.id, options, cursor)

    @property
    def is_behind(self) -> bool:
        return self.cursor < self.source.head


class RouterTable:
    """All routers. One whose definition is still on its way to disk counts for every check."""

    def __init__(self) -> None:
        self.by_id: dict[int, Router] = {}
        self._by_name: dict[str, Router] = {}
        self._sorted_names: list[str] = []
        self._by_source: dict[int, list[Router]] = {}
        self._by_dest: dict[int, list[Router]] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, router: Router) -> None:
        self.by_id[router.id] = router
        if router.name not in self._by_name:
            insort(self._sorted_names, router.name)
        self._by_name[router.name] = router
        self._by_source.setdefault(router.source.id, []).append(router)
        self._by_dest.setdefault(router.dest.id, []).append(router)

    def remove(self, router: Router) -> None:
        if self.by_id.pop(router.id, None) is None:
            return
        if self._by_name.get(router.name) is router:
            del self._by_name[router.name]
            del self._sorted_names[bisect_left(self._sorted_names, router.name)]
        for index, topic in ((self._by_source, router.source), (self._by_dest, router.dest)):
            index[topic.id].remove(router)
            if not index[topic.id]:
                del index[topic.id]

    def named(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def names_after(self, after: str, prefix: str) -> Iterator[Router]:
        """Committed routers in the order of their names, strictly above `after`."""
        names = self._sorted_names
        for name in names[bisect_left(names, max(after, prefix)) :]:
            if not name.startswith(prefix):
                return
            router = self._by_name[name]
            if name != after and router.committed:
                yield router

    def from_source(self, topic: Topic) -> list[Router]:
        return self._by_source.get(topic.id, [])

    def into(self, topic: Topic) -> list[Router]:
        return self._by_dest.get(topic.id, [])

    def touching(self, topic: Topic) -> list[Router]:
        return list({r.id: r for r in (*self.from_source(topic), *self.into(topic))}.values())

    # --- what is refused --------------------------------------------------------------------------------

    def refuse_second_source(self, name: str, source: Topic | None, dest: Topic | None) -> None:
        """A destination has one source; several routers may lead from there to here."""
        if dest is None:
            return
        for other in self.into(dest):
            if other.name != name and other.source is not source:
                raise ApiError(
                    "topic_exists_incompatible",
                    f'topic "{dest.name}" is already fed from another topic',
                    {"topic": dest.name, "reason": "router_dest_fan_in"},
                )

    @staticmethod
    def refuse_new_ends(router: Router, source: Topic | None, dest: Topic | None) -> None:
        if router.source is not source or router.dest is not dest:
            raise ApiError(
                "topic_exists_incompatible",
                f'router "{router.name}" cannot be pointed elsewhere; delete it first',
                {
                    "router": router.name,
                    "reason": "router_repoint_forbidden",
                    "existing_source": router.source.name,
                    "existing_dest": router.dest.name,
                },
            )

    def refuse_cycle(self, name: str, source: Topic | None, dest: Topic | None) -> None:
        """A loop needs a way back from the destination, so both ends have to exist already."""
        if source is None or dest is None:
            return
        way_back = self._path(dest, source, name)
        if way_back is not None:
            cycle = [source.name, *(topic.name for topic in way_back)]
            raise ApiError("router_cycle", "this router closes a loop", {"cycle": cycle})

    def _path(self, start: Topic, target: Topic, without: str) -> list[Topic] | None:
        """Topics from `start` to `target` along the routers, leaving out one of them."""
        came_from: dict[int, Topic | None] = {start.id: None}
        frontier = [start]
        for topic in frontier:
            if topic is target:
                path: list[Topic] = []
                step: Topic | None = topic
                while step is not None:
                    path.append(step)
                    step = came_from[step.id]
                return path[::-1]
            for router in self.from_source(topic):
                if router.name != without and router.dest.id not in came_from:
                    came_from[router.dest.id] = topic
                    frontier.append(router.dest)
        return None


def check_ends(source: str, dest: str) -> None:
    require_topic_name(source, "source")
    require_topic_name(dest, "dest")
    if source == dest:
        raise invalid("source and dest must be different topics")


# GONE is never written: copies that recovery cannot bring back.
COPIES, HOLE_IN_FRONT, HOLE_INSIDE, GONE = range(4)


class CopyRange(msgspec.Struct, array_like=True, gc=False):
    """Consecutive destination seqs: copies of source records, or a hole for each one that was lost."""

    kind: int
    first_source: int
    count: int
    first_dest: int
    # Where the copied source seqs are not consecutive: their distances from the first one. Of a hole that
    # has come through several routers: how many.
    offsets: bytes = b""

    @property
    def hops(self) -> int:
        """Of a hole."""
        return self.offsets[0] if self.offsets else 1

    @property
    def last_dest(self) -> int:
        return self.first_dest + self.count - 1

    @property
    def last_source(self) -> int:
        return int(self.source_seqs()[-1]) if self.offsets else self.first_source + self.count - 1

    def source_seqs(self) -> I64:
        if self.offsets:
            return np.frombuffer(self.offsets, np.uint32).astype(np.int64) + self.first_source
        return np.arange(self.first_source, self.first_source + self.count, dtype=np.int64)


class Stamp(msgspec.Struct, array_like=True, gc=False):
    """What an exactly-once router adds to the meta of its copies, apart from the seq."""

    router: str
    source_name: str
    source_id: int


class CopyPlan(msgspec.Struct, array_like=True, gc=False):
    """What one router did in a step."""

    router: int
    cursor: int
    forwarded: int
    dest: int
    ts: int
    # False for copies of class ephemeral: their seqs are used, their bytes are not kept.
    kept: bool
    with_node: bool
    with_tag: bool
    stamp: Stamp | None
    pieces: list[CopyRange]


class CarriedRows(msgspec.Struct, array_like=True, gc=False):
    """Source records as columns, in the order of their seqs."""

    seqs: bytes
    data: list[bytes]
    metas: list[bytes | None] | None
    names: NameColumns
    hops: bytes | None


class Step(msgspec.Struct, array_like=True, gc=False):
    source: int
    plans: list[CopyPlan]
    carried: CarriedRows | None = None


class RouterState(msgspec.Struct, array_like=True, gc=False):
    """A router in a snapshot."""

    definition: Definition
    forwarded: int
    keys_scanned: int
    keys_seen: dict[int, int]


class RoutersState(msgspec.Struct, array_like=True, gc=False):
    next_id: int
    routers: list[RouterState]
    # Topics whose records steps in the journal refer to, and where the last such step ended.
    referred: dict[int, int]


encode = msgspec.msgpack.Encoder().encode
decode_definition = msgspec.msgpack.Decoder(Definition).decode
decode_step = msgspec.msgpack.Decoder(Step).decode
decode_router_id = msgspec.msgpack.Decoder(int).decode


def state_from_plain(value: Any) -> RoutersState:
    return msgspec.convert(value, RoutersState)
