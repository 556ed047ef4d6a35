"""Long random histories, told to the engine and to the reference model: nobody may tell them apart.

The state machine finds and shrinks; the walks are longer, cheaper per step, and print the seed they took.
Both are deterministic: a failure here is a failure everywhere.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.reference import Draft
from tests.model.twins import KeyedWrite, Match, Step, Twins, scratch_directory
from topics.core.config import TopicConfig

NAMES = ["a", "b"]
TAGS = ["x", "x1", "x12", "y", "y1", "é"]
NODES = ["n", "m", "N"]
SOME_TAGS, SOME_NODES = [None, *TAGS], [None, None, *NODES]
DATA = [None, 0, 7, 12345, "", "data", "é", '","meta":', "x" * 40, {"k": [1, {}]}]
METAS = [None, None, None, {}, {"m": 1}, {"data": "}"}]
MATCHES: list[Match] = [("Eq", tag) for tag in [*TAGS, "absent"]]
MATCHES += [("Glob", prefix) for prefix in ["", "x", "x1", "y", "z", "é"]]
TTLS, CAPS, BYTE_CAPS = [0, 0, 50, 500, 5000], [0, 0, 1, 3, 7, 20], [0, 0, 0, 1, 30, 120]
DISCARDS = ["old", "old", "reject"]
CLASSES = ["disk", "disk", "memory", "fsync", "fsync", "ephemeral"]
LEAPS_MS = [1, 1, 49, 50, 51, 450, 5001, -30, -600]
KEYS, WINDOWS_MS = ["k", "l", "m"], [0, 50, 500, 100_000, 100_000]
LIMITS, BUDGETS = [1, 2, 5, 1000], [1, 10, 60, 1 << 20]

names = st.sampled_from(NAMES)
plain_drafts = st.builds(Draft, st.sampled_from(DATA))
full_drafts = st.builds(
    Draft,
    st.sampled_from(DATA),
    st.sampled_from(SOME_TAGS),
    st.sampled_from(SOME_NODES),
    st.sampled_from(METAS),
)
batches = st.lists(plain_drafts, min_size=1, max_size=3) | st.lists(full_drafts, min_size=1, max_size=6)
matches = st.sampled_from(MATCHES)
configs = st.builds(
    TopicConfig,
    ttl_ms=st.sampled_from(TTLS),
    cap_records=st.sampled_from(CAPS),
    cap_bytes=st.sampled_from(BYTE_CAPS),
    discard=st.sampled_from(DISCARDS),
    durability=st.sampled_from(CLASSES),
    dedupe_node=st.booleans(),
    idempotency_window_ms=st.sampled_from(WINDOWS_MS),
)
keyed_writes = st.builds(KeyedWrite, batches, st.sampled_from(KEYS))
seqs = st.lists(st.integers(0, 40) | st.sampled_from([2**63, 2**64 - 1]), min_size=1, max_size=8)
steps = st.tuples(
    names,
    batches | keyed_writes | matches | st.integers(0, 5) | st.frozensets(st.integers(0, 40), min_size=1),
)


class EngineAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="topics-model-", dir=scratch_directory())
        self.twins: Twins

    @initialize(
        run_events=st.integers(2, 6),
        hot_bytes=st.sampled_from([1, 2000, 1 << 20]),
        config=configs,
        first=st.lists(batches, min_size=1, max_size=5),
    )
    def start(self, run_events: int, hot_bytes: int, config: TopicConfig, first: list[list[Draft]]) -> None:
        self.twins = Twins(self.directory, run_events=run_events, hot_bytes=hot_bytes)
        self.twins.put("a", config)
        self.write("a", first)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.twins.lab.kill()
        shutil.rmtree(self.directory)

    @rule(name=names, several=st.lists(batches, min_size=1, max_size=5))
    def write(self, name: str, several: list[list[Draft]]) -> None:
        for drafts in several:
            self.twins.write(name, drafts)

    @rule(name=names, several=st.lists(keyed_writes, min_size=1, max_size=5))
    def write_with_keys(self, name: str, several: list[KeyedWrite]) -> None:
        for write in several:
            self.twins.write(name, write.drafts, write.key)

    @rule(name=names, config=configs)
    def put(self, name: str, config: TopicConfig) -> None:
        self.twins.put(name, config)

    @rule(name=names, above_floor=st.integers(0, 6))
    def delete_prefix(self, name: str, above_floor: int) -> None:
        if name in self.twins.model:
            self.twins.delete(name, self.twins.model[name].floor + above_floor, None)

    @rule(name=names, below_head=st.none() | st.integers(-1, 6), match=matches)
    def delete_tagged(self, name: str, below_head: int | None, match: Match) -> None:
        if name in self.twins.model:
            head = self.twins.model[name].head
            self.twins.delete(name, None if below_head is None else max(head - below_head, 0), match)

    @rule(name=names, below_head=st.none() | st.integers(-1, 6), match=st.none() | matches, some=seqs)
    def delete_seqs(self, name: str, below_head: int | None, match: Match | None, some: list[int]) -> None:
        if name in self.twins.model:
            head = self.twins.model[name].head
            before = None if below_head is None else max(head - below_head, 0)
            self.twins.delete(name, before, match, some)

    @rule(name=names, if_empty=st.sampled_from([True, True, True, False]))
    def drop(self, name: str, if_empty: bool) -> None:
        self.twins.drop(name, if_empty=if_empty)

    @rule(several=st.lists(steps, min_size=2, max_size=6))
    def burst(self, several: list[tuple[str, Step]]) -> None:
        self.twins.burst(several)

    @rule(ms=st.sampled_from(LEAPS_MS))
    def move_clock(self, ms: int) -> None:
        self.twins.move_clock(ms)

    @rule(everything=st.booleans())
    def checkpoint(self, everything: bool) -> None:
        self.twins.lab.checkpoint(everything=everything)

    @rule(clean=st.booleans(), times=st.integers(1, 2))
    def restart(self, clean: bool, times: int) -> None:
        self.twins.restart(clean=clean, times=times)

    @rule(
        name=names,
        back=st.integers(-2, 30),
        limit=st.sampled_from(LIMITS),
        max_bytes=st.sampled_from(BUDGETS),
        nodes=st.frozensets(st.sampled_from(NODES), max_size=2),
        tags=st.booleans(),
        meta=st.booleans(),
    )
    def read(self, name: str, back: int, limit: int, max_bytes: int, **options: Any) -> None:
        if name in self.twins.model:
            start = max(self.twins.model[name].head - back, 0)
            self.twins.compare_walk(name, start, limit, max_bytes, **options)

    @rule(name=names, limit=st.sampled_from(LIMITS))
    def come_back(self, name: str, limit: int) -> None:
        if name in self.twins.model:
            self.twins.come_back(name, limit)

    @rule(name=names, from_seq=st.integers(0, 10), off=st.integers(-1, 1))
    def read_with_epoch(self, name: str, from_seq: int, off: int) -> None:
        if name in self.twins.model:
            self.twins.compare_read(name, from_seq, 3, epoch=self.twins.model[name].epoch + off)

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        if hasattr(self, "twins"):
            self.twins.compare_states()


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Walk:
    """A history drawn step by step from one seed."""

    def __init__(self, twins: Twins, seed: int) -> None:
        self.twins = twins
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def drafts(self) -> list[Draft]:
        if self.random.random() < 0.3:
            return [Draft(self.pick(DATA)) for _ in range(self.random.randint(1, 3))]
        return [
            Draft(self.pick(DATA), self.pick(SOME_TAGS), self.pick(SOME_NODES), self.pick(METAS))
            for _ in range(self.random.randint(1, 5))
        ]

    def config(self) -> TopicConfig:
        return TopicConfig(
            ttl_ms=self.pick(TTLS),
            cap_records=self.pick(CAPS),
            cap_bytes=self.pick(BYTE_CAPS),
            discard=self.pick(DISCARDS),  # type: ignore[arg-type]
            durability=self.pick(CLASSES),  # type: ignore[arg-type]
            dedupe_node=self.pick([True, False]),
            idempotency_window_ms=self.pick(WINDOWS_MS),
        )

    def step(self) -> None:
        writes = (self.write, self.write, self.write, self.burst)
        self.pick((*writes, self.delete, self.time, self.files, self.put))(self.pick(NAMES))
        self.twins.compare_states()
        for name in self.twins.model:
            self.read(name)
            if self.random.random() < 0.3:
                self.twins.come_back(name, self.pick(LIMITS))

    def write(self, name: str) -> None:
        self.twins.write(name, self.drafts(), self.pick([None, None, *KEYS]))

    def delete(self, name: str) -> None:
        if name not in self.twins.model:
            return
        model = self.twins.model[name]
        by_tag = self.random.random() < 0.7
        before = None if by_tag and self.random.random() < 0.6 else model.floor + self.random.randint(0, 8)
        seqs = None
        if self.random.random() < 0.4:
            reach = range(max(model.floor - 3, 0), model.head + 4)
            seqs = self.random.choices(reach, k=self.random.randint(1, 6))
        self.twins.delete(name, before, self.pick(MATCHES) if by_tag else None, seqs)

    def time(self, _: str) -> None:
        self.twins.move_clock(self.pick(LEAPS_MS))

    def files(self, _: str) -> None:
        if self.random.random() < 0.5:
            self.twins.lab.checkpoint(everything=self.pick([True, False]))
        else:
            self.twins.restart(clean=self.pick([True, False]), times=self.pick([1, 1, 2]))

    def burst(self, _: str) -> None:
        choices: list[Step] = [self.drafts(), self.drafts(), self.pick(MATCHES), self.random.randint(0, 4)]
        choices.append(frozenset(self.random.choices(range(1, 40), k=4)))
        choices.append(KeyedWrite(self.drafts(), self.pick(KEYS)))
        self.twins.burst([(self.pick(NAMES), self.pick(choices)) for _ in range(self.random.randint(2, 5))])

    def put(self, name: str) -> None:
        if self.random.random() < 0.15:
            self.twins.drop(name, if_empty=self.pick([True, False]))
        elif self.random.random() < 0.4:
            self.twins.put(name, self.config())

    def read(self, name: str) -> None:
        self.twins.compare_walk(
            name,
            self.random.randint(0, self.twins.model[name].head + 1),
            self.pick(LIMITS),
            self.pick(BUDGETS),
            nodes=frozenset(self.random.sample(NODES, self.random.randint(0, 2))),
            tags=self.pick([True, False]),
            meta=self.pick([True, False]),
        )


@pytest.fixture
def scratch() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="topics-model-", dir=scratch_directory())
    yield directory
    shutil.rmtree(directory)


def walk(scratch: str, seed: int, length: int) -> None:
    print(f"seed {seed}")
    choose = random.Random(seed)
    twins = Twins(scratch, run_events=choose.randint(2, 7), hot_bytes=choose.choice([1, 1, 2000, 1 << 20]))
    steps = Walk(twins, seed)
    for _ in range(length):
        steps.step()
    twins.lab.kill()


@pytest.mark.parametrize("seed", range(60))
def test_walk(scratch: str, seed: int) -> None:
    walk(scratch, seed, 120)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_long_walk(scratch: str, seed: int) -> None:
    walk(scratch, seed, 400)
