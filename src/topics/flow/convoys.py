"""Small writes that arrive in one turn of the loop travel together.

    a body joins the convoy of its topic ─▶ the journal is about to be written: the convoy departs
    ─▶ through the door ─▶ one batch, one frame, one place in memory ─▶ each writer its own answer

Whoever joins is not looked at before the departure: then all bodies are taken apart at once. What is odd
about one of them, or cannot be written together with others, is left to its writer alone.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

from topics.flow.doors import Doors
from topics.log import AppendOp, Batch, Engine, KeyedWrite, MaybeRetry, Topic, append_to, gather
from topics.values import MAX_IDEMPOTENCY_KEY_BYTES, ApiError, short_of_memory

# With no more writers than this, waiting for others gains nothing.
_FEW = 3
# Bounds the frame.
_MOST_TOGETHER = 1024
# Names are remembered with those who use them; beyond this, they are met anew.
_MOST_NAMES = 4096

Writer = TypeVar("Writer")


class Answering(Protocol[Writer]):
    """How writers are let in where the door is not open for all, and told what became of their records."""

    def let_in(self, travellers: "Travellers[Writer]", started: float) -> "Travellers[Writer]":
        """Those of them who may write just now; the others are taken care of."""

    def answer(self, writers: list[Writer], counts: list[int] | None, started: float, op: AppendOp) -> None:
        """So many records of each writer were committed as one batch, in this order; None means one of each.

        `started`: when the first of them came, on the clock of perf_counter.
        """

    def fail(self, writers: list[Writer], started: float, error: ApiError) -> None: ...

    def append_alone(self, writer: Writer, body: bytes, key: bytes | None, started: float) -> None:
        """Append what one writer sent as if there had been no others; what is wrong with it is answered."""

    def note_held(self, held_s: float) -> None:
        """For so long, taking apart what they sent kept the loop from everything else."""


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

    def each(self) -> Iterator[tuple[Writer, bytes, bytes | None]]:
        keys: Iterable[bytes | None] = repeat(None) if self.keys is None else self.keys
        return zip(self.writers, self.bodies, keys, strict=False)


class Convoy(Generic[Writer]):
    """Where those who write to the topic of one name gather until they depart."""

    __slots__ = ("_assemble", "_bodies", "_keys", "_writers", "name")

    def __init__(self, convoys: "Convoys[Writer]", name: str, *, keyed: bool) -> None:
        self._assemble = convoys.assemble
        self.name = name
        self._writers: list[Writer] = []
        self._bodies: list[bytes] = []
        self._keys: list[bytes] | None = [] if keyed else None

    def join(self, writer: Writer, body: bytes) -> None:
        if not self._writers:
            self._assemble(self)
        self._writers.append(writer)
        self._bodies.append(body)

    def join_all(self, writers: list[Writer], bodies: list[bytes]) -> None:
        if not self._writers:
            self._assemble(self)
        self._writers += writers
        self._bodies += bodies

    def join_keyed(self, writer: Writer, body: bytes, key: bytes) -> None:
        if not self._writers:
            self._assemble(self)
        self._writers.append(writer)
        self._bodies.append(body)
        self._keys.append(key)  # type: ignore[union-attr]

    def depart(self) -> Travellers[Writer]:
        """All that have joined; the next ones find it empty."""
        travellers = Travellers(self._writers, self._bodies, self._keys)
        self._writers, self._bodies = [], []
        if self._keys is not None:
            self._keys = []
        return travellers


class Convoys(Generic[Writer]):
    def __init__(self, engine: Engine, doors: Doors, answering: Answering[Writer]) -> None:
        self._engine = engine
        self._doors = doors
        self._answering = answering
        self._by_name: dict[str, tuple[Convoy[Writer], Convoy[Writer]]] = {}
        self._assembled: list[Convoy[Writer]] = []
        # How many came together the last time.
        self._company = 0
        self._started = 0.0

    def of(self, name: str) -> tuple[Convoy[Writer], Convoy[Writer]]:
        """That of a topic's writers without idempotency keys, and that of those with one."""
        found = self._by_name.get(name)
        if found is None:
            if len(self._by_name) >= _MOST_NAMES:
                self._by_name.clear()
            found = self._by_name[name] = Convoy(self, name, keyed=False), Convoy(self, name, keyed=True)
        return found

    def assemble(self, convoy: Convoy[Writer]) -> None:
        """Somebody is about to join it, the first since it departed."""
        if not self._assembled:
            self._started = perf_counter()
            # Where some have to wait at the door, there is no company to wait for.
            expects_more = self._doors.stand_open and self._company > _FEW
            self._engine.queue.before_flush(self._depart, expects_more=expects_more)
        self._assembled.append(convoy)

    def _depart(self) -> None:
        began = perf_counter()
        convoys, self._assembled = self._assembled, []
        company, started = 0, self._started
        for convoy in convoys:
            travellers = convoy.depart()
            if not self._doors.stand_open:
                travellers = self._answering.let_in(travellers, started)
            count = len(travellers.writers)
            company += count
            if count <= _MOST_TOGETHER:
                self._write(convoy.name, travellers, started)
            else:
                for start in range(0, count, _MOST_TOGETHER):
                    part = range(start, min(start + _MOST_TOGETHER, count))
                    self._write(convoy.name, travellers.chosen(part), started)
        self._company = company
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
        for writer, body, key in travellers.each():
            self._answering.append_alone(writer, body, key, started)
