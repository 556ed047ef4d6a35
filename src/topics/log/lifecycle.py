"""Topics come, change and go.

A name is taken as soon as a creation is ordered, and free as soon as a removal is: what comes behind it is
journalled behind it. Readers see a topic once its creation is on disk.
"""

from bisect import insort
from collections.abc import Callable

import msgspec

from topics.core import ApiError, TopicConfig, check_config, limit_reached, require_topic_name
from topics.log.engine import Engine
from topics.log.remove.removal import enforce_caps, expire, would_remove
from topics.log.topic import Topic
from topics.log.watermarks import FIRST_STEP
from topics.log.write.operation import CallbackOp, Creation, Fail, Op
from topics.storage import FrameDraft, Kind


class CreatePayload(msgspec.Struct, array_like=True, gc=False):
    name: str
    config: TopicConfig
    seq_base: int
    reserved: int


def put_topic(
    engine: Engine,
    name: str,
    config: TopicConfig,
    done: Callable[[bool], None],
    fail: Fail,
    *,
    only_new: bool = False,
    last_check: Callable[[], None] = lambda: None,
    evicted: Callable[[int], None] = lambda _: None,
) -> None:
    """Create or replace; `done` is told whether it was created.

    `only_new`: a topic that is there stays as it is. `last_check` may refuse when all else is in order.
    `evicted` is told, before `done`, how many records the caps of the config have taken.
    """
    engine.queue.assign_pending()
    topic = _to_be_changed(engine, name, config, only_new=only_new)
    last_check()
    if topic is None:
        create_topic(engine, name, config, lambda: done(True), fail)
        return
    engine.refresh(topic)
    now = engine.now()
    frame = FrameDraft(Kind.CONFIG, msgspec.msgpack.encode(config), topic_id=topic.id, ts=now)
    target, lines = topic, (topic.cap_hi, topic.ttl_hi)

    def apply(op: Op) -> None:
        evicted(apply_config(target, config, now))
        engine.note_moved_lines(target, *lines)
        done(False)
        target.wake()

    engine.queue.submit(CallbackOp([frame], topic, apply, fail, sync=True))


def _to_be_changed(engine: Engine, name: str, config: TopicConfig, *, only_new: bool) -> Topic | None:
    """The topic that would get this config; None if it would be made. Raises if it may not."""
    require_topic_name(name)
    check_config(config, name)
    topic = engine.by_name.get(name)
    if topic is None:
        return None
    if only_new:
        raise ApiError("topic_exists", f'there is a topic named "{name}" already', {"topic": name})
    if topic.config.type != config.type:
        raise ApiError(
            "topic_exists_incompatible",
            f'topic "{name}" is a {topic.config.type} and cannot become a {config.type}',
            {"topic": name, "existing_type": topic.config.type, "requested_type": config.type},
        )
    return topic


def preview_topic(engine: Engine, name: str, config: TopicConfig, *, only_new: bool = False) -> int:
    """What `put_topic` would take away: so many records. Raises what it would, and changes nothing."""
    topic = _to_be_changed(engine, name, config, only_new=only_new)
    if topic is None:
        require_room(engine, 1)
        return 0
    engine.refresh(topic)
    return would_remove(topic, config, engine.now())


def apply_config(topic: Topic, config: TopicConfig, now: int) -> int:
    """Returns how many records its caps have taken."""
    # What the old TTL has taken stays gone, whether or not a reader came in time to see it go.
    expire(topic, now)
    if topic.keys is not None:
        topic.keys.close_window(now)
    topic.set_config(config)
    expire(topic, now, at_once=True)
    if topic.keys is not None:
        topic.keys.close_window(now)
    count = topic.live_count
    enforce_caps(topic, now)
    return count - topic.live_count


def create_topic(
    engine: Engine, name: str, config: TopicConfig, done: Callable[[], None], fail: Fail
) -> Topic:
    """The name is taken at once; the topic is shown when its creation is on disk."""
    # Asked first: a refusal must not leave the name taken. But behind the time: a clock that was set back is
    # journalled, and the disk may turn out to be full.
    now = engine.now()
    require_room(engine, 1)
    first_life = engine.lives.is_first(name)
    topic = _new_topic(
        engine, engine.next_topic_id, name, config, engine.settings.seq_base, first_life=first_life
    )
    engine.next_topic_id += 1
    topic.reserve(topic.seq_base - 1 + FIRST_STEP)
    engine.witness.reserved(topic.reserved)
    payload = CreatePayload(name, config, topic.seq_base, topic.reserved)
    kind = Kind.CREATE if first_life else Kind.CREATE_AGAIN
    frame = FrameDraft(kind, msgspec.msgpack.encode(payload), topic_id=topic.id, ts=now)

    def apply(op: Op) -> None:
        _show(engine, topic)
        done()

    def undo(error: ApiError) -> None:
        if engine.by_name.get(name) is topic:
            del engine.by_name[name]
        engine.by_id.pop(topic.id, None)
        fail(error)

    engine.queue.submit(Creation([frame], topic, apply, undo, sync=True))
    return topic


def require_room(engine: Engine, topics: int) -> None:
    """Raises when so many topics could not be created now; a caller that needs several asks for all first."""
    limit = engine.settings.max_topics
    if topics and limit and len(engine.by_name) + topics > limit:
        raise limit_reached("max_topics", limit)
    if topics:
        engine.queue.require_growth(topics)


def _new_topic(
    engine: Engine, topic_id: int, name: str, config: TopicConfig, seq_base: int, *, first_life: bool
) -> Topic:
    topic = Topic(
        topic_id,
        seq_base,
        engine.store.changed,
        name=name,
        config=config,
        store=engine.store,
        totals=engine.totals,
        clock_mark=engine.clock_mark,
        first_life=first_life,
    )
    engine.by_name[name] = topic
    engine.by_id[topic_id] = topic
    return topic


def _show(engine: Engine, topic: Topic) -> None:
    if not topic.committed:
        topic.show()
        insort(engine.sorted_names, topic.name)
        for extension in engine.extensions:
            extension.topic_shown(topic)
        for tell in engine.on_shown:
            tell(topic)


def add_recovered(
    engine: Engine, topic_id: int, name: str, config: TopicConfig, seq_base: int, *, first_life: bool = True
) -> Topic:
    topic = _new_topic(engine, topic_id, name, config, seq_base, first_life=first_life)
    _show(engine, topic)
    return topic


def drop_topic(engine: Engine, name: str, if_empty: bool, done: Callable[[bool], None], fail: Fail) -> None:
    engine.queue.assign_pending()
    topic = engine.find(name)
    if topic is None:
        done(False)
        return
    target = topic
    engine.refresh(target)
    refuse_unless_empty(target, if_empty)
    frame = FrameDraft(Kind.DROP, b"", topic_id=target.id, ts=engine.now())
    # Behind the time, as above: a refusal must not leave the name free.
    engine.queue.require_room(1)
    # The name is free at once, so that a write behind this one starts a new instance.
    _hide(engine, target)
    engine.lives.remember(name)

    def apply(op: Op) -> None:
        apply_drop(engine, target)
        done(True)

    def undo(error: ApiError) -> None:
        engine.by_name[name] = target
        insort(engine.sorted_names, name)
        fail(error)

    engine.queue.submit(CallbackOp([frame], target, apply, undo, sync=True))


def refuse_unless_empty(topic: Topic, if_empty: bool) -> None:
    count = topic.live_count + topic.pending_count
    if if_empty and count:
        detail = {"topic": topic.name, "count": count}
        raise ApiError("topic_not_empty", f'topic "{topic.name}" still holds records', detail)


def _hide(engine: Engine, topic: Topic) -> None:
    if engine.by_name.get(topic.name) is topic:
        del engine.by_name[topic.name]
        if topic.committed:
            engine.sorted_names.remove(topic.name)


def apply_drop(engine: Engine, topic: Topic) -> None:
    _hide(engine, topic)
    engine.by_id.pop(topic.id, None)
    engine.touched.discard(topic)
    topic.drop()
    for extension in engine.extensions:
        extension.topic_dropped(topic)
    topic.wake()
