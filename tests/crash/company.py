"""Writers who come together to a simulated server: a record of each, written in one go where that can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.crash.drafts import Draft, body
from tests.crash.effects import Added, Effect
from tests.crash.keys import Keyed, Remembers
from tests.flow.open_doors import open_doors
from topics.flow.convoys import Convoys, Travellers
from topics.log.topic import Topic
from topics.log.write.append import AppendOp
from topics.log.write.append_request import parse_append
from topics.log.write.together import TogetherOp
from topics.values.errors import ApiError

if TYPE_CHECKING:
    from tests.crash.model import Event
    from tests.crash.world import World


@dataclass(eq=False)
class Writer:
    """What the model expects of a write. One without an event is a retry."""

    name: str
    topic: Topic
    seq: int
    event: Event | None


class Company:
    def __init__(self, world: World) -> None:
        self._world = world
        self._convoys: Convoys[Writer] = Convoys(world.engine, open_doors(world.engine), self)
        # The first event of those that are not written yet.
        self._begun = 0
        # So many records were written before the loop turned.
        self.in_one_go = 0

    def write(self, sent: dict[str, list[tuple[Draft, str | None]]]) -> None:
        """To each topic, from writers who all have idempotency keys or all have none."""
        world, wanted = self._world, []
        self._begun = world.model.next_index
        for name, writes in sent.items():
            topic = world.engine.find(name)
            if topic is not None:
                writers = self._expect(topic, writes)
                keys = [key.encode() for _, key in writes if key is not None] or None
                wanted.append((name, (writers, [body([draft]) for draft, _ in writes], keys)))
        queue, together = world.queue, self._convoys._together
        append = together.append

        def noted(wanted: list[Any], started: float) -> list[int]:
            before = len(queue.waiting)
            left = append(wanted, started)
            self._arrange([op for op in queue.waiting[before:] if isinstance(op, TogetherOp)])
            return left

        queue.is_free = lambda: True
        queue.hurry = queue.flush
        together.append = noted  # type: ignore[method-assign]
        # The frames of all stand in the journal by their class, and not as they came.
        world.disk.before_write = lambda: self._note(self._arrange([together._unsynced, together._synced]))
        try:
            self._convoys.join_all(wanted)
        finally:
            world.disk.before_write = lambda: None
            queue.is_free = lambda: False
            queue.flush()
            queue.hurry = lambda: None
            together.append = append  # type: ignore[method-assign]

    def _expect(self, topic: Topic, writes: list[tuple[Draft, str | None]]) -> list[Writer]:
        world = self._world
        known, seq, now = world.seen(topic), topic.assigned, world.engine.now()
        ts = max(now, topic.last_ts)
        writers: list[Writer] = []
        for draft, key in writes:
            earlier = None if key is None else world.answered_before(known, key)
            if earlier is not None:
                writers.append(Writer(topic.name, topic, earlier[0], None))
                continue
            seq += 1
            assert seq > known.shown_head, f"{topic.name}: seq {seq} is given out twice"
            records = world.records(topic, [draft], seq, ts)
            effects: list[Effect] = [Added(known, records, now)]
            if key is not None:
                effects.append(Remembers(known, key, Keyed((seq, 1), now, records[0].is_volatile)))
            writers.append(Writer(topic.name, topic, seq, world.model.event(*effects)))
        return writers

    def _note(self, count: int) -> None:
        self.in_one_go += count

    def _arrange(self, ops: list[TogetherOp[Writer] | None]) -> int:
        """These get their frames now, in this order, before all that is not written yet; and how many."""
        events = [
            writer.event
            for op in ops
            if op is not None
            for share in op.shares
            for writer in share[1]
            if writer.event is not None
        ]
        if events:
            self._world.model.put_first(events, self._begun)
            self._begun += len(events)
        return len(events)

    # --- how they are answered --------------------------------------------------------------------------

    def let_in(self, travellers: Travellers[Writer], started: float) -> Travellers[Writer]:
        return travellers

    def answer(self, writers: list[Writer], counts: list[int] | None, started: float, op: AppendOp) -> None:
        assert counts is None
        for at, writer in enumerate(writers):
            self._answer(writer, op.first_seq + at, op, is_retry=op.deduped)

    def answer_together(self, op: TogetherOp[Writer]) -> None:
        for _, writers, first_seq, *_ in op.shares:
            for at, writer in enumerate(writers):
                self._answer(writer, first_seq + at, op, is_retry=False)

    def _answer(self, writer: Writer, seq: int, op: AppendOp | TogetherOp[Writer], *, is_retry: bool) -> None:
        assert seq == writer.seq, f"{writer.name}: told {seq} for {writer.seq}"
        assert is_retry == (writer.event is None), f"{writer.name}: a retry, or not, of {seq}"
        if writer.event is not None:
            self._world.ack(writer.event, op, writer.topic)

    def fail(self, writers: list[Writer], started: float, error: ApiError) -> None:
        for writer in writers:
            if writer.event is not None:
                self._world.failing(writer.event)(error)

    def take_apart(self, writer: Writer) -> None:
        raise AssertionError("nobody has sent several")

    def append_alone(self, writer: Writer, body: bytes, key: bytes | None, started: float) -> None:
        try:
            self._world.engine.append(
                writer.name,
                parse_append(body, key),
                lambda op: self.answer([writer], None, started, op),
                lambda error: self.fail([writer], started, error),
            )
        except ApiError as error:
            self.fail([writer], started, error)

    def note_held(self, held_s: float) -> None:
        return None
