"""Subscribing to topics, in the same words for watch sessions and over a WebSocket: to what, from where."""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from topics.flow.watch.subscription import WatchOptions
from topics.http.door.keys import ApiKey
from topics.http.routes.fields import clamped, node_set, unsigned
from topics.http.routes.service import Service, check_name
from topics.log import Choice, Shape, Topic
from topics.values import DEFAULT_READ_BYTES, MAX_LIMIT, MAX_READ_BYTES, MAX_WATCH_TOPICS, NO_LIFE, invalid


class Start(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Where to begin in one topic."""

    from_seq: int = 0
    tail: bool = False
    epoch: int | UnsetType = UNSET


class Wanted(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Which parts of records, whose records, and how many at a time."""

    node: str | list[str] | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    limit: int = 0
    max_batch_bytes: int = 0

    def options(self, default_limit: int, choice: Choice | None = None, **more: bool) -> WatchOptions:
        return WatchOptions(
            limit=clamped(self.limit, default_limit, MAX_LIMIT, "limit"),
            max_bytes=clamped(self.max_batch_bytes, DEFAULT_READ_BYTES, MAX_READ_BYTES, "max_batch_bytes"),
            nodes=node_set(self.node),
            shape=Shape(tags=self.include_tags, meta=self.include_meta, data=self.include_data),
            choice=choice,
            **more,
        )


class Opening(msgspec.Struct, gc=False):
    """A topic that may be watched, and the cursor to begin with."""

    topic: Topic
    seq: int
    # The life in which that means something, as far as the reader has said; otherwise the present one.
    epoch: int

    def describe(self) -> dict[str, int]:
        topic = self.topic
        return {
            "from_seq": self.seq,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
            "epoch": topic.id,
        }


def open_topics(
    service: Service,
    key: ApiKey | None,
    starts: dict[str, Start],
    last_check: Callable[[], None],
    *,
    lenient: bool,
) -> dict[str, Opening]:
    """All of them or an error; with `lenient`, unknown topics are left out.

    `last_check` may refuse when all else is in order.
    """
    if not 1 <= len(starts) <= MAX_WATCH_TOPICS:
        raise invalid(f"topics must name 1 to {MAX_WATCH_TOPICS} topics")
    for name, start in starts.items():
        unsigned(start.from_seq, f"topics.{name}.from_seq")
        if start.epoch is not UNSET:
            unsigned(start.epoch, f"topics.{name}.epoch")
    check_names(key, starts)
    engine = service.engine
    if lenient:
        starts = {name: start for name, start in starts.items() if engine.find(name) is not None}
    for name in starts:
        engine.require(name)
    last_check()
    return {name: _opening(service.admission.read(name), start) for name, start in starts.items()}


def _opening(topic: Topic, start: Start) -> Opening:
    if start.tail:
        return Opening(topic, topic.head, topic.id)
    if start.epoch is not UNSET:
        return Opening(topic, start.from_seq, start.epoch)
    # Above the head it is no position in this life, and will not be one when more was written.
    return Opening(topic, start.from_seq, topic.id if start.from_seq <= topic.head else NO_LIFE)


def check_names(key: ApiKey | None, names: dict[str, Start] | list[str]) -> None:
    """One name outside the key's prefixes refuses everything."""
    for name in names:
        check_name(key, name)
