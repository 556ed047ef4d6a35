"""A whole server without its sockets, on a simulated disk, beside the model of what it has promised."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from tests.crash.disk import SimulatedDisk
from tests.crash.drafts import Draft, body
from tests.crash.effects import Added, Configured, Did, Effect, Match, Record, Removed, TopicModel
from tests.crash.installation import Installation, finished
from tests.crash.keys import Keyed, Remembers, set_back_keys
from tests.crash.losses import check_notice, note_told
from tests.crash.model import Event, Model
from tests.model.twins import tag_match
from tests.support.appending import Appended, ByHand, append
from topics.core.clock import ManualClock
from topics.core.config import TopicConfig
from topics.core.errors import ApiError, OutcomeUnknown, WritesOff
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import Settlement, Verb
from topics.log import delete_records
from topics.log.engine import Engine
from topics.log.lifecycle import drop_topic, put_topic
from topics.log.topic import Topic
from topics.log.write.operation import Op
from topics.storage.filesystem import is_full
from topics.storage.journal import SyncTicket

# How long a journal file is that was written ahead.
AHEAD_BYTES = 16 * 1024


class World:
    def __init__(self, rng: random.Random, disk: SimulatedDisk | None = None, **settings: Any) -> None:
        self.rng = rng
        self.disk = disk or SimulatedDisk()
        self.clock = ManualClock()
        self.model = Model()
        self.settings = settings
        # Names whose topic somebody asked to drop: the next one under that name comes later.
        self.dropped: set[str] = set()
        # Seqs that the last restart took because their class promises nothing, by topic.
        self.volatile: dict[int, list[int]] = {}
        self._ticket: SyncTicket | None = None
        self._next_data = 0
        # How the clock was set back, as far as is known already.
        self._set_backs: set[tuple[int, int]] = set()
        self.open()

    def open(self) -> None:
        self._ticket = None
        self.here = Installation(self.disk, self.clock, self._note_set_back, **self.settings)
        self.engine = self.here.engine
        self.queue = self.engine.queue

    def _note_set_back(self, engine: Engine, shown_ms: int, now_ms: int) -> None:
        """What is over by now stays so, even where the disk had not known how late it was."""
        is_kept = not engine.recovered or engine._may_write_again
        # A start tells again what it finds in the journal. One that runs tells what happens now, and a clock
        # may be set back from and to the very same times twice.
        is_old = not engine.recovered and (shown_ms, now_ms) in self._set_backs
        if not is_kept or is_old:
            return
        self._set_backs.add((shown_ms, now_ms))
        for topic in engine.by_id.values():
            if topic.id in self.model.topics:
                self.model.topics[topic.id].expire(shown_ms, last=topic.ttl_hi)
        under_way = [event.effects for event in self.model.events]
        for effect in chain.from_iterable(under_way):
            if isinstance(effect, Remembers):
                effect.set_back(shown_ms, now_ms)
        for known in self.model.topics.values():
            set_back_keys(known, shown_ms, now_ms)

    def topic(self, name: str) -> Topic:
        return self.engine.require(name)

    def model_of(self, name: str) -> TopicModel:
        return self.model.topics[self.topic(name).id]

    def aged_to(self) -> int:
        """Age has taken records up to here: the time before a restart counts, though the clock is back."""
        return max(self.engine.now(), self.here.aged_to_ms)

    def seen(self, topic: Topic) -> TopicModel:
        """Whoever looks at a topic, to write to it or to delete, lets its old records go first."""
        known = self.model.topics[topic.id]
        # What age takes is gone once the engine says so: a crash may come before. And when the disk takes
        # no more writes, nothing keeps the time.
        self.engine.refresh(topic)
        if self.keeps_time:
            known.expire(self.engine.now())
        return known

    @property
    def keeps_time(self) -> bool:
        """The disk knows how late it has become: what age has taken stays gone."""
        mark = self.engine.clock_mark
        return self.queue.refusals.failure is None and mark._asked_ms <= mark.reached_ms

    # --- committing -------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Everything submitted so far takes effect, or writing is over."""
        self.finish_sync()
        self.queue.sync_now()

    def begin_write(self) -> None:
        """A group is written beside the loop: the disk has it, or has refused, and nobody has been told."""
        if not self.queue.is_writing and self.queue.refusals.failure is None:
            write = self.queue.begin_write()
            if write is not None:
                write.run()

    def begin_sync(self) -> None:
        """A sync runs beside the loop: it is done on the disk, and nobody has been told."""
        if self._ticket is None and self.queue.refusals.failure is None:
            self.queue.flush()
            if self.queue.effects.unsynced:
                ticket = self.queue.effects.begin_sync()
                try:
                    ticket.run()
                except OSError as error:
                    self.queue.effects.finish_sync(ticket, error)
                else:
                    self._ticket = ticket

    def finish_sync(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self.queue.effects.finish_sync(ticket)

    def ack(self, event: Event, op: Op | Appended | None, topic: Topic) -> None:
        """What class fsync acknowledges is safe: that is the promise. The rest is where a sync was seen."""
        is_safe = topic.config.durability == "fsync" or (op is not None and op.fsync_ms > 0)
        self.model.ack(event, is_safe=is_safe, position=self.engine.journal.position)

    def failed(self, _: ApiError) -> None:
        """Of something that changes no topic."""

    def failing(self, event: Event) -> Callable[[ApiError], None]:
        """What is refused is not there, now or after a restart; unless nobody could tell, and nobody did."""

        def failed(error: ApiError) -> None:
            if not isinstance(error, OutcomeUnknown):
                self.model.refuse(event)

        return failed

    def submit(self, event: Event, call: Callable[[], None]) -> bool:
        try:
            call()
        except ApiError:
            self.model.refuse(event)
            return False
        return True

    # --- topics -----------------------------------------------------------------------------------------

    def put(self, name: str, **config: Any) -> None:
        engine, model = self.engine, self.model
        wanted = TopicConfig(**config)
        known = engine.by_name.get(name)
        if known is not None and known.committed:
            event = model.event(Configured(self.seen(known), wanted, engine.now()))
        elif known is not None:
            return
        else:
            made = TopicModel(engine.next_topic_id, name, wanted, first_life=name not in self.dropped)
            event = model.event(
                Did(lambda: model.topics.__setitem__(made.id, made), lambda: model.topics.pop(made.id))
            )
        self.submit(
            event,
            lambda: put_topic(engine, name, wanted, lambda _: self.ack_synced(event), self.failing(event)),
        )

    def ack_unsynced(self, event: Event) -> None:
        self.model.ack(event, is_safe=False, position=self.engine.journal.position)

    def ack_synced(self, event: Event) -> None:
        self.model.ack(event, is_safe=True, position=self.engine.journal.position)

    def drop(self, name: str) -> None:
        model, topic = self.model, self.engine.find(name)
        if topic is None:
            return
        known = model.topics[topic.id]
        routers, gone_names = dict(model.routers), set(model.gone_names)
        self.dropped.add(name)

        def forget() -> None:
            model.gone_names.add(name)
            model.topics.pop(known.id)
            model.routers = {n: r for n, r in model.routers.items() if known not in (r.source, r.dest)}

        def bring_back() -> None:
            model.topics[known.id] = known
            model.routers = dict(routers)
            model.gone_names = set(gone_names)

        event = model.event(Did(forget, bring_back))
        self.submit(
            event,
            lambda: drop_topic(
                self.engine, name, False, lambda _: self.ack_synced(event), self.failing(event)
            ),
        )

    # --- records ----------------------------------------------------------------------------------------

    def draft(self, tag: str | None = None, node: str | None = None, padding: int = 0) -> Draft:
        """A record like no other."""
        self._next_data += 1
        return (b'"%d%b"' % (self._next_data, b"." * padding), tag, node)

    def records(self, topic: Topic, drafts: list[Draft], first: int, ts: int) -> list[Record]:
        volatile = topic.config.durability == "ephemeral"
        return [Record(seq, ts, *draft, volatile) for seq, draft in enumerate(drafts, first)]

    def append(self, name: str, drafts: list[Draft], key: str | None = None) -> bool:
        engine = self.engine
        topic = engine.find(name)
        if topic is None:
            return False
        known = self.seen(topic)
        earlier = None if key is None else self.answered_before(known, key)
        if earlier is not None:
            return self._repeat(name, body(drafts, key), earlier)
        first, ts = topic.assigned + 1, max(engine.now(), topic.last_ts)
        assert first > known.shown_head, f"{name}: seq {first} is given out twice"
        records = self.records(topic, drafts, first, ts)
        effects: list[Effect] = [Added(known, records, engine.now())]
        if key is not None:
            keyed = Keyed((first, len(drafts)), engine.now(), records[0].is_volatile)
            effects.append(Remembers(known, key, keyed))
        event = self.model.event(*effects)
        text = body(drafts, key)
        return self.submit(
            event,
            lambda: append(engine, name, text, lambda op: self.ack(event, op, topic), self.failing(event)),
        )

    def append_together(self, sent: dict[str, list[tuple[Draft, str | None]]]) -> None:
        """Append a record for each draft, as requests that arrive in one turn of the event loop.

        The requests of a topic share one frame of the journal. A draft comes with its idempotency key.
        """
        engine = self.engine
        requests: list[ByHand] = []
        for name, writes in sent.items():
            topic = engine.find(name)
            if topic is None:
                continue
            known, seq, now = self.seen(topic), topic.assigned, engine.now()
            # A topic that refuses what it has no room for may take a later, smaller record.
            for draft, key in writes[:1] if topic.config.discard == "reject" else writes:
                text = body([draft], key)
                earlier = None if key is None else self.answered_before(known, key)
                if earlier is not None:
                    requests.append(ByHand(name, text, self._repeated(name, earlier), self.failed))
                    continue
                seq += 1
                assert seq > known.shown_head, f"{name}: seq {seq} is given out twice"
                records = self.records(topic, [draft], seq, max(now, topic.last_ts))
                effects: list[Effect] = [Added(known, records, now)]
                if key is not None:
                    effects.append(Remembers(known, key, Keyed((seq, 1), now, records[0].is_volatile)))
                event = self.model.event(*effects)
                done = partial(self._appended, event, topic, seq)
                requests.append(ByHand(name, text, done, self.failing(event)))
        for request in requests:
            engine.append(request)
        self.queue.assign_pending()

    def _appended(self, event: Event, topic: Topic, seq: int, appended: Appended) -> None:
        assert not appended.deduped
        assert appended.first_seq == seq, f"{topic.name}: told {appended.first_seq} for {seq}"
        self.ack(event, appended, topic)

    def answered_before(self, known: TopicModel, key: str) -> tuple[int, int] | None:
        """What the first write with this key was told, or will be."""
        keyed = known.keys.get(key)
        under_way = [event.effects for event in self.model.events if not event.is_acked]
        for effect in chain.from_iterable(under_way):
            if isinstance(effect, Remembers) and effect.topic is known and effect.key == key:
                keyed = effect.keyed
        window_ms = known.config.idempotency_window_ms
        return keyed.answer if keyed is not None and self.engine.now() - keyed.ts <= window_ms else None

    def _repeated(self, name: str, expected: tuple[int, int]) -> Callable[[Appended], None]:
        def done(op: Appended) -> None:
            assert op.deduped, f"{name}: a write was repeated that is there"
            assert (op.first_seq, op.count) == expected, f"{name}: a retry was told of other records"

        return done

    def _repeat(self, name: str, text: bytes, expected: tuple[int, int]) -> bool:
        try:
            append(self.engine, name, text, self._repeated(name, expected), self.failed)
        except ApiError:
            return False
        return True

    def delete(
        self,
        name: str,
        before: int | None = None,
        match: Match | None = None,
        seqs: list[int] | None = None,
    ) -> bool:
        engine = self.engine
        topic = engine.find(name)
        if topic is None:
            return False
        known = self.seen(topic)
        bound = topic.assigned + 1 if before is None else min(before, topic.assigned + 1)
        chosen = None if seqs is None else set(seqs)
        event = self.model.event(Removed(known, engine.now(), bound, match=match, seqs=chosen))

        def done(deleted: int) -> None:
            # A deletion is safe in every class that keeps records.
            if topic.config.durability == "ephemeral":
                self.ack(event, None, topic)
            else:
                self.ack_synced(event)
            removed = event.effects[0]
            assert isinstance(removed, Removed)
            assert deleted == len(removed.removed), f"{name}: a delete took what it should not"

        return self.submit(
            event,
            lambda: delete_records(
                engine, topic, before, tag_match(match), done, self.failing(event), seqs=seqs
            ),
        )

    # --- queues -----------------------------------------------------------------------------------------

    def claim(self, name: str, wanted: int, node: str) -> list[int]:
        """Seqs of the jobs handed out; committed before it returns, because somebody waits for it."""
        self.commit()
        topic = self.engine.find(name)
        answered: list[Claim] = []
        if topic is not None and self.queue.refusals.failure is None:
            claim = Claim(node, wanted, topic.config.lease_ms, answered.append, self.failed)
            self.here.queues.of(topic).serve([claim])
            self.commit()
            self.commit()
        seqs = [seq for claim in answered for seq, _ in claim.jobs]
        if topic is not None and self.queue.refusals.failure is None:
            known = self.seen(topic)
            assert all(seq in known.live for seq in seqs), f"{name}: a job was handed out that is not there"
            for claim in answered:
                self._hear(topic, known, claim.notice)
        return seqs

    def _hear(self, topic: Topic, known: TopicModel, notice: Notice | None) -> None:
        """The worker reads what was lost, unless it has gone."""
        queue = self.here.queues.of(topic)
        check_notice(known, notice, self.engine.now())
        if notice is not None:
            if self.rng.random() < 0.8:
                queue.told(notice)
                note_told(known, topic, notice)
                self.commit()
            else:
                queue.losses.withdraw()

    def acknowledge(self, name: str, seqs: list[int], node: str) -> None:
        topic = self.engine.find(name)
        if topic is None:
            return
        known, queue = self.seen(topic), self.here.queues.of(topic)
        queue.refresh()
        held = {seq for seq in seqs if queue.table.held(seq, node, None) is not None}
        if not held:
            return
        event = self.model.event(Removed(known, self.engine.now(), topic.assigned + 1, seqs=held))

        def done(ack: Settlement) -> None:
            self.ack(event, ack.op, topic)
            # Age may have taken some while the deletion was on its way.
            assert len(ack.seqs) + len(ack.lost) == len(held)

        guarded = [(seq, None) for seq in sorted(held)]
        ack = Settlement(Verb.ACK, node, guarded, done, self.failing(event))
        self.submit(event, lambda: queue.settle(ack))

    # --- room -------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Other programs take all the room there is, or nearly all."""
        self.disk.fill(leaving=self.rng.choice((0, 0, 10, 100, 400, 3000)))

    def make_room(self) -> None:
        self.disk.capacity = None
        self.look_for_room()

    def look_for_room(self) -> None:
        """As the server does, again and again."""
        engine = self.engine
        if engine.reserve.is_needed and self.queue.refusals.failure is None:
            self.queue.refusals.note_full()
        if engine.writes_off is WritesOff.DISK_FULL:
            if engine.reserve.finds_room():
                engine.reserve.make(engine.settings.disk_reserve_bytes or 0)
                engine.resume_writes()
            else:
                self.queue.refusals.try_again()

    # --- upkeep -----------------------------------------------------------------------------------------

    def checkpoint(self, *, everything: bool = False) -> None:
        self.finish_sync()
        if self.queue.refusals.failure is None:
            with unless_full(self.disk):
                self.here.checkpointer.run_now(everything=everything)

    def rotate(self) -> None:
        self.finish_sync()
        self.engine.rotate()

    def write_ahead(self) -> None:
        """As upkeep does where there are many syncs; a journal file is small here."""
        if self.queue.refusals.failure is None and self.engine.writes_off is None:
            self.engine.reserve.write_ahead(AHEAD_BYTES, self.engine.journal.ahead_bytes)

    def move_cold(self) -> int:
        due = finished(self.here.tiers.due())
        for number in due:
            with unless_full(self.disk):
                assert self.here.tiers.copy(number)
                self.here.tiers.switch(number)
        return len(due)


@contextmanager
def unless_full(disk: SimulatedDisk) -> Iterator[None]:
    """Upkeep that finds no room is done another time."""
    try:
        yield
    except OSError as error:
        if disk.capacity is None or not is_full(error):
            raise
