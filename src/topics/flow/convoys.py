"""Small writes that arrive in one turn of the loop travel together.

    a body joins those for the same topic ─▶ the journal is about to be written: all depart, through the door
    ─▶ together (all topics at once), or topic by topic, or each alone ─▶ each writer gets its own answer

Whoever joins is not looked at before the departure: then all bodies are taken apart at once. What is odd
about one of them, or cannot be written together with others, is left to its writer alone.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

from topics.flow.doors import Doors
from topics.log import (
    Addressed,
    AppendOp,
    Batch,
    Engine,
    KeyedWrite,
    MaybeRetry,
    Sent,
    Together,
    TogetherOp,
    Topic,
    append_to,
    gather,
)
from topics.values import MAX_IDEMPOTENCY_KEY_BYTES, ApiError, short_of_memory

# With no more writers than this, waiting for others gains nothing.
_FEW = 3
# Bounds the frame.
_MOST_TOGETHER = 1024

Writer = TypeVar("Writer")


class Answering(Protocol[Writer]):
    """How writers are let in where the door is not open for all, and told what became of their records."""

    def let_in(self, travellers: "Travellers[Writer]", started: float) -> "Travellers[Writer]":
        """Those of them who may write just now; the others are taken care of."""

    def answer(self, writers: list[Writer], counts: list[int] | None, started: float, op: AppendOp) -> None:
        """So many records of each writer were committed as one batch, in this order; None means one of each.

        `started`: when the first of them came, on the clock of perf_counter.
        """

    def answer_together(self, op: TogetherOp[Writer]) -> None:
        """The same for one record of each writer, in several topics."""

    def fail(self, writers: list[Writer], started: float, error: ApiError) -> None: ...

    def take_apart(self, writer: Writer) -> None:
        """Of all that this writer has sent as a bundle nothing is written: now each is to come by itself."""

    def append_alone(self, writer: Writer, body: bytes, key: bytes | None, started: float) -> None:
        """Append what one writer sent as if there had been no others; what is wrong with it is answered."""

    def note_held(self, held_s: float) -> None:
        """For so long, taking apart what they sent kept the loop from everything else."""


def is_bundle(writers: list[Writer]) -> bool:
    """One writer has sent all of it, and nobody else has a part in that."""
    return len(writers) > 1 and writers[0] is writers[-1]


class Travellers(NamedTuple, Generic[Writer]):
    """Those who write to one topic together, and what each has sent."""

    writers: list[Writer]
    bodies: list[bytes]
    # The idempotency key of each, if they have one.
    keys: list[bytes] | None

    def chosen(self, indexes: Iterable[int]) -> "Travellers[Writer]":
        keys = self.keys
        return Travellers(
            [self.writers[index] for index in indexes],
            [self.bodies[index] for index in indexes],
            None if keys is None else [keys[index] for index in indexes],
        )

    def parts(self) -> "Iterator[Travellers[Writer]]":
        """None of which is too large."""
        count, most = len(self.writers), _MOST_TOGETHER
        return (self.chosen(range(start, min(start + most, count))) for start in range(0, count, most))

    @property
    def is_bundle(self) -> bool:
        return is_bundle(self.writers)

    def each(self) -> Iterator[tuple[Writer, bytes, bytes | None]]:
        keys: Iterable[bytes | None] = repeat(None) if self.keys is None else self.keys
        return zip(self.writers, self.bodies, keys, strict=False)


class Convoys(Generic[Writer]):
    def __init__(self, engine: Engine, doors: Doors, answering: Answering[Writer]) -> None:
        self._engine = engine
        self._doors = doors
        self._answering = answering
        self._together = Together(engine, answering)
        # Who is to depart, to which topic; and of these, where those that come one by one join: those without
        # idempotency keys, and those with one.
        self._assembled: list[Addressed[Writer]] = []
        self._plain: dict[str, Sent[Writer]] = {}
        self._keyed: dict[str, Sent[Writer]] = {}
        # How many came together the last time.
        self._company = 0
        self._started = 0.0

    def join(self, name: str, writer: Writer, body: bytes) -> None:
        """Somebody writes to the topic of this name."""
        found = self._plain.get(name)
        if found is None:
            self._plain[name] = found = ([], [], None)
            # Others have assembled most of the time; every topic comes along here in every turn of the loop.
            if self._assembled:
                self._assembled.append((name, found))
            else:
                self._assemble([(name, found)])
        found[0].append(writer)
        found[1].append(body)

    def join_keyed(self, name: str, writer: Writer, body: bytes, key: bytes) -> None:
        """The same, with an idempotency key."""
        found = self._keyed.get(name)
        if found is None:
            self._keyed[name] = found = ([], [], [])
            self._assemble([(name, found)])
        writers, bodies, keys = found
        writers.append(writer)
        bodies.append(body)
        keys.append(key)  # type: ignore[union-attr]

    def join_bundle(self, name: str, writer: Writer, bodies: list[bytes], keys: list[bytes] | None) -> None:
        """Somebody has sent several, which are answered in their order: they share nothing with others."""
        self._assemble([(name, ([writer] * len(bodies), bodies, keys))])

    def _assemble(self, several: list[Addressed[Writer]]) -> None:
        if not self._assembled:
            self._started = perf_counter()
            # Where some have to wait at the door, there is no company to wait for.
            expects_more = self._company > _FEW and self._are_let_pass(several)
            self._engine.queue.before_flush(self._depart, expects_more=expects_more)
        self._assembled += several

    def join_all(self, several: list[Addressed[Writer]]) -> None:
        """Some who were read together. Where nothing else is under way, they do not have to wait for it.

        Nor do those who are left by that wait for others, where only few write.
        """
        began = perf_counter()
        if not self._are_let_pass(several):
            several = self._let_in(several, began)
            if not several:
                return
        if not self._assembled:
            left = self._together.commit(several, began)
            if left is not None:
                self._answering.note_held(perf_counter() - began)
                if not left:
                    return
                several = [several[index] for index in left]
        if self._assembled or self._company > _FEW:
            self._assemble(several)
            return
        self._started = began
        self._assembled += several
        self._engine.queue.commit_now(self._depart)

    def _are_let_pass(self, several: list[Addressed[Writer]]) -> bool:
        """Whoever is not to wait at the door goes on as if nobody were, though others are being read."""
        doors = self._doors
        return doors.stand_open or all(doors.let_pass(name) for name, _ in several)

    def _let_in(self, several: list[Addressed[Writer]], started: float) -> list[Addressed[Writer]]:
        """Those of them who may write just now."""
        let_pass, let_in = self._doors.let_pass, self._answering.let_in
        inside: list[Addressed[Writer]] = []
        for name, sent in several:
            entered = sent if let_pass(name) else let_in(Travellers(*sent), started)
            if entered[0]:
                inside.append((name, entered))
        return inside

    def _depart(self) -> None:
        began = perf_counter()
        assembled, self._assembled = self._assembled, []
        self._plain.clear()
        self._keyed.clear()
        started = self._started
        if not self._doors.stand_open:
            assembled = self._let_in(assembled, started)
        self._company = sum([len(sent[0]) for _, sent in assembled])
        if self._company > _MOST_TOGETHER:
            assembled = [(name, part) for name, sent in assembled for part in Travellers(*sent).parts()]
        for index in self._together.append(assembled, started):
            name, sent = assembled[index]
            self._write(name, Travellers(*sent), started)
        self._answering.note_held(perf_counter() - began)

    def _write(self, name: str, travellers: Travellers[Writer], started: float) -> None:
        topic = self._engine.by_name.get(name)
        if topic is None:
            self._each_alone(travellers, started)
            return
        try:
            batch, counts, odd = gather(travellers.bodies)
        except MemoryError:
            self._answering.fail(travellers.writers, started, short_of_memory())
            return
        if odd and travellers.is_bundle:
            self._each_alone(travellers, started)
            return
        if odd:
            self._each_alone(travellers.chosen(odd), started)
            travellers = travellers.chosen(sorted({*range(len(travellers.writers))} - {*odd}))
        if batch is not None:
            self._append(topic, batch, counts, travellers, started)

    def _append(
        self,
        topic: Topic,
        batch: Batch,
        counts: list[int] | None,
        travellers: Travellers[Writer],
        started: float,
    ) -> None:
        writers, keys = travellers.writers, travellers.keys
        done = partial(self._answering.answer, writers, counts, started)
        fail = partial(self._answering.fail, writers, started)
        taken: KeyedWrite | None = None
        try:
            if keys is not None:
                # A key stands for all records that came with it. Here, each would be remembered with one.
                if counts is not None or max(map(len, keys)) > MAX_IDEMPOTENCY_KEY_BYTES:
                    raise MaybeRetry
                if topic.config.idempotency_window_ms:
                    taken = self._engine.keys.of(topic).take_each(keys)
            append_to(self._engine, topic, batch, len(writers), done, fail, taken)
        except (ApiError, MaybeRetry):
            # Perhaps only the last does not fit: each hears for itself.
            if taken is not None:
                taken.withdraw()
            self._each_alone(travellers, started)

    def _each_alone(self, travellers: Travellers[Writer], started: float) -> None:
        if travellers.is_bundle:
            self._answering.take_apart(travellers.writers[0])
            return
        for writer, body, key in travellers.each():
            self._answering.append_alone(writer, body, key, started)
