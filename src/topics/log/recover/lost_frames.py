"""What recovery cannot read, and what follows: holes for what was lost, and no seq that is used twice."""

import logging

from topics.core import DEFAULT_CONFIG, MAX_BULK_RECORDS, MAX_SEQ
from topics.log.engine import Engine
from topics.log.lifecycle import add_recovered
from topics.log.remove import ledger
from topics.log.topic import Topic
from topics.log.watermarks import LARGEST_STEP
from topics.storage import CREATIONS, HEADER_BYTES, Damage, FrameDraft, Kind, around_data

log = logging.getLogger("topics.recovery")
_GIVING_OUT_SEQS = (Kind.APPEND, Kind.KEYED, Kind.ADVANCE, Kind.GROUP, Kind.ROUTE)
# No record takes less journal than this: a row of one-digit numbers, and the length of its data.
_SMALLEST_RECORD_BYTES = around_data(1, 0) + len("0") + 4


class LostFrames:
    def __init__(self, engine: Engine, known_to: int) -> None:
        """`known_to`: the position of the snapshot, which knows what frames below it had brought about."""
        self._engine = engine
        self._known_to = known_to
        # Topics whose head is not certain: an unreadable frame may have given out seqs above it. A later
        # frame of the topic that can be read settles it, because it names its own seqs.
        self._head_uncertain: set[int] = set()
        # How much journal cannot be read and names no topic: a bound on how many seqs it can have given out.
        self._unreadable_bytes = 0
        # Topics whose config is not certain, because a frame that may have changed it cannot be read. They
        # may have been ephemeral or fed by a router, and then few bytes of journal give out very many seqs.
        self._config_uncertain: set[int] = set()
        # When what is missing is found to be; it was there before, nobody knows until when.
        self._found_ms = max(engine.opened_ms, engine.shown_time.floor_ms)
        # Topics whose reservation was closed by a hole above their head, and the first seq of that hole.
        self._closed: list[tuple[Topic, int]] = []

    def note_damage(self, damage: Damage) -> None:
        engine = self._engine
        engine.totals.found_damage()
        header = damage.header
        log.error(
            "journal is damaged from %d to %d; its records are announced as lost", damage.position, damage.end
        )
        if damage.end <= self._known_to:
            return  # found again as missing data
        if header is None or (header.kind == Kind.GROUP and not header.topic_id):
            # The topics whose records it held were named in what cannot be read.
            self._head_uncertain.update(engine.by_id)
            if self._unreadable_bytes or damage.may_adopt:
                # One of them may have been a config, another what was written under it. Or it has adopted
                # segments: those are not in it, and their seqs are.
                self._config_uncertain.update(engine.by_id)
            self._unreadable_bytes += damage.end - damage.position
            return
        engine.next_topic_id = max(engine.next_topic_id, header.topic_id + 1)
        if header.topic_id and header.kind in _GIVING_OUT_SEQS:
            self.prove_head(header.topic_id, header.last_seq)
            if header.kind == Kind.GROUP and header.topic_id in engine.by_id:
                # A reservation made with it lies in what cannot be read, and reaches no further than this.
                engine.by_id[header.topic_id].reserve(min(header.last_seq + LARGEST_STEP, MAX_SEQ))
        elif header.kind in CREATIONS and header.topic_id not in engine.by_id:
            # At once: copies are not appended, so no frame of theirs would bring it back.
            self.keep_nameless(header.topic_id)
            self._config_uncertain.add(header.topic_id)
        elif header.kind == Kind.CONFIG:
            self._config_uncertain.add(header.topic_id)
        elif header.kind == Kind.ROUTER_PUT:
            self._config_uncertain.update(engine.by_id)
        elif header.kind == Kind.ROUTE:
            # It fed several topics, and only the payload named them.
            self._head_uncertain.update(engine.by_id)

    def prove_head(self, topic_id: int, head: int, found_ms: int | None = None) -> None:
        """The topic had got as far as this. `found_ms`: when that was found out, if it was not just now."""
        topic = self._engine.by_id.get(topic_id)
        self._head_uncertain.discard(topic_id)
        if topic is not None and head > topic.head:
            topic.add_hole(topic.head + 1, head, ledger.LOST, found_ms=found_ms or self._found_ms)

    def clear(self, topic_id: int) -> None:
        """Later records of the topic can be read: by their seqs, they tell what is missing before them."""
        self._head_uncertain.discard(topic_id)

    def keep_nameless(self, topic_id: int) -> Topic:
        """A topic whose creation is damaged: what was written to it is kept, under a name that says so."""
        engine = self._engine
        log.error("the name of topic %d is lost; its records are in recovered-%d", topic_id, topic_id)
        return add_recovered(
            engine, topic_id, f"recovered-{topic_id}", DEFAULT_CONFIG, engine.settings.seq_base
        )

    def close_reservations(self, position: int) -> None:
        """Seqs that may have been handed out by frames that are gone are never handed out again.

        `position` is where the journal ends now.
        """
        testimony = self._engine.witness.previous
        synced = testimony.synced
        if testimony.same_boot:
            cut = testimony.acked > position
        else:
            # What the page says was acknowledged is no bound: the disk may have it as it was long before.
            cut = testimony.known and not testimony.clean
        # Synced journal that is gone may have held reservations.
        destroyed = max(synced - position, 0) + self._unreadable_bytes
        for topic in self._engine.by_id.values():
            lost = topic.id in self._head_uncertain or (
                cut and (topic.config.durability != "fsync" or synced > position)
            )
            reserved = max(topic.reserved, self._highest_given_out(topic, destroyed))
            if lost and reserved > topic.head:
                self._closed.append((topic, topic.head + 1))
                end = min(reserved, MAX_SEQ)
                topic.add_hole(topic.head + 1, end, ledger.LOST, found_ms=self._found_ms)

    def _highest_given_out(self, topic: Topic, destroyed: int) -> int:
        """The highest seq of a topic that so many bytes of journal can have handed out."""
        testimony = self._engine.witness.previous
        # One frame may stand for many records: copies made by routers, records of class ephemeral.
        by_frames = topic.head + -(-destroyed // HEADER_BYTES) * MAX_BULK_RECORDS
        if testimony.same_boot and testimony.reserved:
            return min(by_frames, testimony.reserved)
        is_counted = topic.config.durability == "ephemeral" or topic.id in self._engine.derived
        if is_counted or topic.id in self._config_uncertain:
            return by_frames
        return topic.head + destroyed // _SMALLEST_RECORD_BYTES

    def journal_holes(self) -> bool:
        """Closed for every later recovery too; False when that could not be written."""
        engine, now = self._engine, self._engine.now()
        frames = [
            FrameDraft(Kind.HOLE, b"", topic.id, first, topic.head - first + 1, now)
            for topic, first in self._closed
        ]
        return not frames or engine.queue.note_synced(frames)
