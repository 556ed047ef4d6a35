"""Above the snapshot: frames take effect again, exactly as they did the first time."""

from collections.abc import Mapping

import msgspec

from topics.core import TopicConfig
from topics.log.engine import Engine
from topics.log.extension import Extension
from topics.log.lifecycle import CreatePayload, add_recovered, apply_config, apply_drop
from topics.log.recover.lost_frames import LostFrames
from topics.log.recover.small_frames import SmallFrames, decode_rows, rows_of
from topics.log.remove.deletion import Selector, apply_delete, note_unfound
from topics.log.remove.removal import enforce_caps, expire, keep_lines
from topics.log.topic import Topic
from topics.log.write.segment_import import decode_import
from topics.storage import CREATIONS, Frame, Kind

_create = msgspec.msgpack.Decoder(CreatePayload)
_config = msgspec.msgpack.Decoder(TopicConfig)
_selector = msgspec.msgpack.Decoder(Selector)
_number = msgspec.msgpack.Decoder(int)
_lines = msgspec.msgpack.Decoder(tuple[int, int])
_set_back = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, int, int]]])
_heads = msgspec.msgpack.Decoder(list[tuple[int, int]])


class JournalReplay:
    """Takes the frames that the snapshot does not know yet."""

    def __init__(
        self, engine: Engine, by_kind: Mapping[int, Extension], lost_frames: LostFrames, next_topic_id: int
    ) -> None:
        """`next_topic_id`: every id below it is known to the snapshot, or was dropped by then."""
        self._engine = engine
        self._by_kind = by_kind
        self._lost_frames = lost_frames
        self._next_topic_id = next_topic_id
        self._dropped: set[int] = set()

    def take(self, frame: Frame) -> None:
        engine = self._engine
        kind = frame.kind
        # Of every frame, not only of creations: one that is damaged must not free its number, the epoch.
        engine.next_topic_id = max(engine.next_topic_id, frame.topic_id + 1)
        if kind in CREATIONS:
            self._create(frame)
        elif kind == Kind.HEADS:
            for topic_id, head in _heads.decode(frame.payload):
                self._lost_frames.prove_head(topic_id, head)
        elif kind == Kind.CLOCK:
            engine.clock_mark.note(frame.ts)
            if not engine.witness.previous.same_boot:
                engine.shown_time.raise_floor(frame.ts)
        elif kind == Kind.CLOCK_SET_BACK:
            self._set_back(frame)
            return
        elif kind in self._by_kind:
            self._by_kind[kind].replay(frame)
        else:
            known = engine.by_id.get(frame.topic_id) or self._nameless(frame)
            if known is not None:
                self._apply_to(known, frame)
        if kind != Kind.CLOCK:
            engine.shown_time.raise_floor(frame.clock_ms)

    def _set_back(self, frame: Frame) -> None:
        """Later times count no more; what they had taken stays gone."""
        engine = self._engine
        shown_ms, all_lines = _set_back.decode(frame.payload)
        for topic_id, cap_hi, ttl_hi in all_lines:
            topic = engine.by_id.get(topic_id)
            if topic is not None:
                keep_lines(topic, cap_hi, ttl_hi, shown_ms)
        engine.shown_time.restart(shown_ms, frame.ts)
        engine.forget_later_times(shown_ms, frame.ts)

    def take_joined(self, joined: SmallFrames) -> bool:
        """Small frames as if they were one; False where that would make a difference."""
        engine = self._engine
        topic = engine.by_id.get(joined.topic_id)
        if topic is None:
            return False
        config = topic.config
        if config.ttl_ms or config.cap_records or config.cap_bytes or joined.first_seq != topic.head + 1:
            return False  # retention has to be asked in between, or something is missing or known already
        self._lost_frames.clear(topic.id)
        rows = decode_rows(joined)
        times = joined.times()
        topic.append(rows, joined.position, times=times)
        topic.publish(rows.count, rows.size, times[-1][1], rows.ts)
        engine.touched.add(topic)
        engine.shown_time.raise_floor(joined.clock_ms)
        return True

    def _create(self, frame: Frame) -> None:
        engine, payload = self._engine, _create.decode(frame.payload)
        if payload.name in engine.by_name:
            # The frame that dropped the instance before this one is damaged.
            apply_drop(engine, engine.by_name[payload.name])
        topic = add_recovered(
            engine,
            frame.topic_id,
            payload.name,
            payload.config,
            payload.seq_base,
            first_life=frame.kind == Kind.CREATE,
        )
        topic.reserve(payload.reserved)

    def _nameless(self, frame: Frame) -> Topic | None:
        """The topic of a frame whose creation cannot be found."""
        topic_id = frame.topic_id
        was_dropped = topic_id < self._next_topic_id or topic_id in self._dropped
        if was_dropped or frame.kind not in (Kind.APPEND, Kind.ADVANCE, Kind.ADOPT):
            return None
        return self._lost_frames.keep_nameless(topic_id)

    def _apply_to(self, topic: Topic, frame: Frame) -> None:
        engine = self._engine
        kind = frame.kind
        if kind == Kind.APPEND:
            self._append_rows(topic, frame)
        elif kind == Kind.ADOPT:
            self._import_rows(topic, frame)
        elif kind == Kind.ADVANCE:
            expire(topic, frame.clock_ms)
            self._lost_frames.prove_head(topic.id, frame.last_seq)
            topic.skip_to(frame.last_seq, frame.ts)
        elif kind == Kind.DELETE:
            selector = _selector.decode(frame.payload)
            note_unfound(topic, selector)
            apply_delete(topic, selector, frame.ts)
        elif kind == Kind.CONFIG:
            apply_config(topic, _config.decode(frame.payload), frame.ts)
        elif kind == Kind.RESERVE:
            topic.reserve(_number.decode(frame.payload))
        elif kind == Kind.HOLE:
            expire(topic, frame.ts)
            self._lost_frames.prove_head(topic.id, frame.last_seq, frame.ts)
        elif kind == Kind.LINES:
            keep_lines(topic, *_lines.decode(frame.payload), frame.ts)
        elif kind == Kind.DROP:
            self._dropped.add(topic.id)
            apply_drop(engine, topic)

    def _append_rows(self, topic: Topic, frame: Frame) -> None:
        if self._comes_next(topic, frame):
            rows = rows_of(frame)
            expire(topic, frame.clock_ms)
            topic.append(rows, frame.position)
            self._publish(topic, frame, rows.size)

    def _import_rows(self, topic: Topic, frame: Frame) -> None:
        """A segment has them. Whether it can be read is found out by its first reader."""
        if self._comes_next(topic, frame):
            imported = decode_import(frame)
            self._engine.next_segment = max(self._engine.next_segment, imported.segment + 1)
            expire(topic, frame.clock_ms)
            topic.assign_ahead(imported.count, imported.size, imported.ts)
            topic.import_run(imported.run(topic.id), imported.segment)
            self._publish(topic, frame, imported.size)

    def _comes_next(self, topic: Topic, frame: Frame) -> bool:
        """False for records that are there already; those that are missing before them become a hole."""
        self._lost_frames.clear(topic.id)
        if frame.last_seq <= topic.head:
            return False
        if frame.first_seq <= topic.head:
            # No process has written a frame that overlaps another one.
            self._lost_frames.prove_head(topic.id, frame.last_seq)
            self._engine.totals.found_damage()
            return False
        if frame.first_seq > topic.head + 1:
            self._lost_frames.prove_head(topic.id, frame.first_seq - 1)
            self._engine.totals.found_damage()
        return True

    def _publish(self, topic: Topic, frame: Frame, size: int) -> None:
        topic.publish(frame.count, size, frame.ts)
        enforce_caps(topic)
        self._engine.touched.add(topic)
