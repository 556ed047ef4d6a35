"""What watch sessions and WebSocket subscriptions ask for in the same words."""

from __future__ import annotations

import msgspec

from topics.http.door.keys import ApiKey
from topics.http.routes.fields import unsigned
from topics.http.routes.service import Service, check_name
from topics.log.read.render import Shape
from topics.log.topic import Topic
from topics.values.errors import invalid
from topics.values.settings import MAX_WATCH_TOPICS


class Start(msgspec.Struct, gc=False):
    """Where to begin in one topic."""

    from_seq: int = 0
    tail: bool = False


class Parts(msgspec.Struct, kw_only=True, gc=False):
    """Which parts of records, and whose records, are wanted."""

    node: str | list[str] | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True

    def shape(self) -> Shape:
        return Shape(tags=self.include_tags, meta=self.include_meta, data=self.include_data)


class Opening(msgspec.Struct, gc=False):
    """A topic that may be watched, and the cursor to begin with."""

    topic: Topic
    seq: int

    def describe(self) -> dict[str, int]:
        return {"from_seq": self.seq, "head_seq": self.topic.head, "earliest_seq": self.topic.floor}


def open_topics(
    service: Service, key: ApiKey | None, starts: dict[str, Start], *, lenient: bool
) -> dict[str, Opening]:
    """All of them or an error; with `lenient`, unknown topics are left out."""
    if not 1 <= len(starts) <= MAX_WATCH_TOPICS:
        raise invalid(f"topics must name 1 to {MAX_WATCH_TOPICS} topics")
    for name, start in starts.items():
        unsigned(start.from_seq, f"topics.{name}.from_seq")
    check_names(key, starts)
    openings: dict[str, Opening] = {}
    for name, start in starts.items():
        if lenient and service.engine.find(name) is None:
            continue
        topic = service.doors.read(name)
        openings[name] = Opening(topic, topic.head if start.tail else start.from_seq)
    return openings


def check_names(key: ApiKey | None, names: dict[str, Start] | list[str]) -> None:
    """One name outside the key's prefixes refuses everything."""
    for name in names:
        check_name(key, name)
