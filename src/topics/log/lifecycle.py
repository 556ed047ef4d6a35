"""Topics come, change and go.

A name is taken as soon as a creation is ordered, and free as soon as a removal is: what comes behind it is
journalled behind it. Readers see a topic once its creation is on disk.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.log.remove.retention import enforce_caps, expire
from topics.log.topic import Topic
from topics.log.watermarks import FIRST_STEP
from topics.log.write.operation import CallbackOp, Fail, Op
from topics.storage.frame import Kind
from topics.values.config import TopicConfig, check_config
from topics.values.errors import ApiError, limit_reached
from topics.values.names import require_topic_name

if TYPE_CHECKING:
    from topics.log.engine import Engine


class CreatePayload(msgspec.Struct, array_like=True, gc=False):
    name: str
    config: TopicConfig
    seq_base: int
    reserved: int


def put_topic(
    engine: Engine, name: str, config: TopicConfig, done: Callable[[bool], None], fail: Fail
) -> None:
    """Create or replace; `done` is told whether it was created."""
    require_topic_name(name)
    check_config(config, name)
    topic = engine.by_name.get(name)
    if topic is None:
        create_topic(engine, name, config, lambda: done(True), fail)
        return
    if topic.config.type != config.type:
        raise ApiError(
            "topic_exists_incompatible",
            f'topic "{name}" is a {topic.config.type} and cannot become a {config.type}',
            {"topic": name, "existing_type": topic.config.type, "requested_type": config.type},
        )
    engine.refresh(topic)
    now = engine.now()
    frame = engine.journal.frame(Kind.CONFIG, msgspec.msgpack.encode(config), topic_id=topic.id, ts=now)
    target, lines = topic, (topic.cap_hi, topic.ttl_hi)

    def apply(op: Op) -> None:
        apply_config(target, config, now)
        engine.note_moved_lines(target, *lines)
        done(False)
        target.wake()

    engine.queue.submit(CallbackOp(frame, topic, apply, fail, sync=True))


def apply_config(topic: Topic, config: TopicConfig, now: int) -> None:
    # What the old TTL has taken stays gone, whether or not somebody looked in time.
    expire(topic, now)
    topic.set_config(config)
    expire(topic, now)
    enforce_caps(topic)


def create_topic(
    engine: Engine, name: str, config: TopicConfig, done: Callable[[], None], fail: Fail
) -> Topic:
    """The name is taken at once; the topic is shown when its creation is on disk."""
    # Asked first: a refusal must not leave the name taken.
    require_room(engine, 1)
    topic = _new_topic(engine, engine.next_topic_id, name, config, engine.settings.seq_base)
    engine.next_topic_id += 1
    topic.reserve(topic.seq_base - 1 + FIRST_STEP)
    engine.witness.reserved(topic.reserved)
    payload = CreatePayload(name, config, topic.seq_base, topic.reserved)
    frame = engine.journal.frame(
        Kind.CREATE, msgspec.msgpack.encode(payload), topic_id=topic.id, ts=engine.now()
    )

    def apply(op: Op) -> None:
        _show(engine, topic)
        done()

    def undo(error: ApiError) -> None:
        if engine.by_name.get(name) is topic:
            del engine.by_name[name]
        engine.by_id.pop(topic.id, None)
        fail(error)

    engine.queue.submit(CallbackOp(frame, topic, apply, undo, sync=True))
    return topic


def require_room(engine: Engine, topics: int) -> None:
    """Raises when so many topics could not be created now; whoever needs several asks for all first."""
    limit = engine.settings.max_topics
    if topics and limit and len(engine.by_name) + topics > limit:
        raise limit_reached("max_topics", limit)
    engine.queue.require_room(topics)


def _new_topic(engine: Engine, topic_id: int, name: str, config: TopicConfig, seq_base: int) -> Topic:
    topic = Topic(topic_id, name, config, seq_base, engine.store, engine.totals, engine.clock_mark)
    engine.by_name[name] = topic
    engine.by_id[topic_id] = topic
    return topic


def _show(engine: Engine, topic: Topic) -> None:
    if not topic.committed:
        topic.show()
        insort(engine.sorted_names, topic.name)
        for extension in engine.extensions:
            extension.topic_shown(topic)


def add_recovered(engine: Engine, topic_id: int, name: str, config: TopicConfig, seq_base: int) -> Topic:
    topic = _new_topic(engine, topic_id, name, config, seq_base)
    _show(engine, topic)
    return topic


def drop_topic(engine: Engine, name: str, if_empty: bool, done: Callable[[bool], None], fail: Fail) -> None:
    topic = engine.find(name)
    if topic is None:
        done(False)
        return
    target = topic
    engine.refresh(target)
    if if_empty and target.live_count + target.pending_count:
        raise ApiError(
            "topic_not_empty",
            f'topic "{name}" still holds records',
            {"topic": name, "count": target.live_count + target.pending_count},
        )
    engine.queue.require_room(1)
    frame = engine.journal.frame(Kind.DROP, b"", topic_id=target.id, ts=engine.now())
    # The name is free at once, so that a write behind this one starts a new instance.
    _hide(engine, target)

    def apply(op: Op) -> None:
        apply_drop(engine, target)
        done(True)

    def undo(error: ApiError) -> None:
        engine.by_name[name] = target
        insort(engine.sorted_names, name)
        fail(error)

    engine.queue.submit(CallbackOp(frame, target, apply, undo, sync=True))


def _hide(engine: Engine, topic: Topic) -> None:
    if engine.by_name.get(topic.name) is topic:
        del engine.by_name[topic.name]
        if topic.committed:
            engine.sorted_names.remove(topic.name)


def apply_drop(engine: Engine, topic: Topic) -> None:
    if topic.dropped:
        return
    _hide(engine, topic)
    engine.by_id.pop(topic.id, None)
    engine.touched.discard(topic)
    topic.drop()
    for extension in engine.extensions:
        extension.topic_dropped(topic)
    topic.wake()
