"""Long random histories, told to the engine and to the reference model: nobody may tell them apart."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.log.harness import Lab, account, records
from tests.model.reference import LOST, Draft, ReferenceTopic, Refused
from topics.log.batch import parse_append
from topics.log.rendering import Shape
from topics.log.tags import TagMatch
from topics.log.topic import Topic
from topics.values.config import TopicConfig
from topics.values.errors import ApiError

NAMES = st.sampled_from(["a", "b"])
TAGS = ["x", "x1", "x12", "y", "y1", "é"]
NODES = ["n", "m", "N"]
DATA = st.one_of(st.none(), st.integers(0, 9), st.sampled_from(["", "data", "é", '","meta":', "x" * 40, {"k": [1, {}]}]))
METAS = st.one_of(st.none(), st.none(), st.sampled_from([{}, {"m": 1}, {"data": "}"}]))
DRAFTS = st.builds(
    Draft, DATA, st.sampled_from([None, *TAGS]), st.sampled_from([None, None, *NODES]), METAS
)
PLAIN_DRAFTS = st.builds(Draft, DATA)
BATCHES = st.one_of(
    st.lists(PLAIN_DRAFTS, min_size=1, max_size=3),
    st.lists(DRAFTS, min_size=1, max_size=6),
)
CONFIGS = st.builds(
    TopicConfig,
    ttl_ms=st.sampled_from([0, 0, 50, 500, 5000]),
    cap_records=st.sampled_from([0, 0, 1, 3, 7, 20]),
    cap_bytes=st.sampled_from([0, 0, 0, 1, 30, 120]),
    discard=st.sampled_from(["old", "old", "reject"]),
    durability=st.sampled_from(["disk", "disk", "memory", "fsync", "fsync", "ephemeral"]),
    dedupe_node=st.sampled_from([True, True, False]),
)
MATCHES = st.one_of(
    st.tuples(st.just("Eq"), st.sampled_from([*TAGS, "absent"])),
    st.tuples(st.just("Glob"), st.sampled_from(["", "x", "x1", "y", "z", "é"])),
)


def body(drafts: list[Draft]) -> bytes:
    return json.dumps({"records": [draft.to_json() for draft in drafts]}, ensure_ascii=False).encode()


class EngineAgainstModel(RuleBasedStateMachine):
    """Every rule does one thing to both sides; every invariant compares what can be seen afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="topics-model-", dir=_scratch())
        self.model: dict[str, ReferenceTopic] = {}
        self.lab: Lab
        self.time_shown = 0

    @initialize(run=st.integers(2, 6), hot=st.sampled_from([1, 1, 2000, 1 << 20]))
    def start(self, run: int, hot: int) -> None:
        self.lab = Lab(self.directory, segment_max_events=run, hot_bytes=hot)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.lab.kill()
        shutil.rmtree(self.directory)

    def now(self) -> int:
        """Time as readers know it: it stands still while the clock is behind."""
        self.time_shown = max(self.time_shown, self.lab.clock.now_ms())
        return self.time_shown

    # --- writing ----------------------------------------------------------------------------------------

    @rule(name=NAMES, batches=st.lists(BATCHES, min_size=1, max_size=4))
    def write(self, name: str, batches: list[list[Draft]]) -> None:
        for drafts in batches:
            self.write_one(name, drafts)

    def write_one(self, name: str, drafts: list[Draft]) -> None:
        topic = self.model.get(name)
        created = topic is None
        if topic is None:
            topic = self.model[name] = ReferenceTopic(TopicConfig(), self.lab.engine.next_topic_id)
        before = topic.head
        try:
            expected = topic.write(drafts, self.now())
        except Refused as refusal:
            with pytest.raises(ApiError) as caught:
                self.lab.commit(
                    lambda done, fail: self.lab.engine.append(name, parse_append(body(drafts)), done, fail)
                )
            assert caught.value.code == refusal.code
            assert topic.head == before
            return
        op = self.lab.commit(
            lambda done, fail: self.lab.engine.append(name, parse_append(body(drafts)), done, fail)
        )
        assert (op.first_seq, op.last_seq, op.head_seq) == (*expected, expected[1])
        assert op.created is created

    @rule(name=NAMES, config=CONFIGS)
    def put(self, name: str, config: TopicConfig) -> None:
        created = self.lab.commit(lambda done, fail: self.lab.engine.put_topic(name, config, done, fail))
        assert created is (name not in self.model)
        if created:
            self.model[name] = ReferenceTopic(config, self.lab.topic(name).id)
        else:
            self.model[name].configure(config, self.now())

    @rule(name=NAMES, before=st.none() | st.integers(-6, 4), match=st.none() | MATCHES, absolute=st.booleans())
    def delete(
        self, name: str, before: int | None, match: tuple[str, str] | None, absolute: bool
    ) -> None:
        model = self.model.get(name)
        if model is None or (before is None and match is None):
            return
        if before is not None:
            before = max((0 if absolute else model.floor if match is None else model.head) + before, 0)
        deleted = self.lab.commit(
            lambda done, fail: self.lab.engine.delete_records(
                self.lab.topic(name), before, tag_match(match), done, fail
            )
        )
        assert deleted == model.delete(before, match, self.now())

    @rule(name=NAMES, if_empty=st.booleans())
    def drop(self, name: str, if_empty: bool) -> None:
        model = self.model.get(name)
        if model is not None:
            model.expire(self.now())
        if if_empty and model is not None and model.count:
            with pytest.raises(ApiError) as caught:
                self.lab.drop(name, if_empty=True)
            assert caught.value.code == "topic_not_empty"
            return
        assert self.lab.drop(name, if_empty=if_empty) is (model is not None)
        self.model.pop(name, None)

    @precondition(lambda self: self.model)
    @rule(
        steps=st.lists(
            st.tuples(NAMES, st.one_of(BATCHES, MATCHES, st.integers(0, 5))), min_size=2, max_size=6
        )
    )
    def burst(self, steps: list[tuple[str, Any]]) -> None:
        """Several operations wait for the disk together: nothing of them is seen before it answers."""
        steps = [(name, step) for name, step in steps if self.takes_bursts(name)]
        before = {name: self.seen(name) for name in self.model}
        failures: list[ApiError] = []
        results: list[int] = []
        engine = self.lab.engine
        for name, step in steps:
            topic = self.lab.topic(name)
            if isinstance(step, list):
                engine.append(
                    name, parse_append(body(step)), lambda op: results.append(op.last_seq), failures.append
                )
            elif isinstance(step, tuple):
                engine.delete_records(topic, None, tag_match(step), results.append, failures.append)
            else:
                engine.delete_records(topic, topic.floor + step, None, results.append, failures.append)
        assert before == {name: self.seen(name) for name in self.model}
        floors = {name: model.floor for name, model in self.model.items()}
        engine.queue.sync_now()
        expected = []
        for name, step in steps:
            model = self.model[name]
            if isinstance(step, list):
                expected.append(model.write(step, self.now())[1])
            elif isinstance(step, tuple):
                # The bound is the last seq given out when the delete was asked for.
                expected.append(model.delete(None, step, self.now()))
            else:
                expected.append(model.delete(floors[name] + step, None, self.now()))
        assert not failures
        assert sorted(results) == sorted(expected)

    def takes_bursts(self, name: str) -> bool:
        # Admission does not count on deletes that are still on their way, a sequential model would.
        return name in self.model and self.model[name].config.discard == "old"

    def seen(self, name: str) -> tuple[Any, ...]:
        page = self.lab.diff(name)
        topic = self.lab.topic(name)
        return page.rows, page.head_seq, page.earliest_seq, topic.live_count, topic.live_bytes

    # --- time, files, restarts --------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 49, 50, 51, 450, 5001, -30, -600]))
    def move_clock(self, ms: int) -> None:
        self.lab.clock.advance(ms)

    @rule(everything=st.booleans())
    def checkpoint(self, everything: bool) -> None:
        self.lab.checkpoint(everything=everything)

    @rule(clean=st.booleans(), times=st.integers(1, 2))
    def restart(self, clean: bool, times: int) -> None:
        for model in self.model.values():
            model.expire(self.now())
        before = {name: (self.lab.topic(name).loss_line, self.lab.topic(name).floor) for name in self.model}
        self.lab.restart(clean=clean)
        states = self.lab.states()
        for _ in range(times - 1):
            self.lab.restart(clean=clean)
            assert self.lab.states() == states
        for name, model in self.model.items():
            topic = self.lab.topic(name)
            assert topic.loss_line >= before[name][0]
            assert topic.floor >= before[name][1]
            if model.has_volatile:
                forget_volatile(model, topic)

    # --- comparing --------------------------------------------------------------------------------------

    @rule(
        name=NAMES,
        back=st.integers(-2, 30),
        limit=st.sampled_from([1, 2, 5, 1000]),
        max_bytes=st.sampled_from([1, 10, 60, 1 << 20]),
        nodes=st.sets(st.sampled_from(NODES), max_size=2),
        tags=st.booleans(),
        meta=st.booleans(),
    )
    def read(
        self, name: str, back: int, limit: int, max_bytes: int, nodes: set[str], tags: bool, meta: bool
    ) -> None:
        model = self.model.get(name)
        if model is None:
            return
        position = max(model.head - back, 0)
        wanted = frozenset(nodes)
        while True:
            page = self.compare_read(name, position, limit, max_bytes, wanted, tags, meta)
            if page is None or page[1]:
                return
            position = page[0]

    @rule(name=NAMES, from_seq=st.integers(0, 10), off=st.integers(-1, 1))
    def read_with_epoch(self, name: str, from_seq: int, off: int) -> None:
        model = self.model.get(name)
        if model is not None:
            page = self.lab.diff(name, from_seq, 3, epoch=model.epoch + off)
            assert_same(page, model.read(self.now(), from_seq, 3, 1 << 20, epoch=model.epoch + off))

    def compare_read(
        self,
        name: str,
        from_seq: int,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        nodes: frozenset[str] = frozenset(),
        tags: bool = False,
        meta: bool = True,
    ) -> tuple[int, bool]:
        page = self.lab.diff(
            name, from_seq, limit, max_bytes, nodes=nodes or None, shape=Shape(tags=tags, meta=meta)
        )
        expected = self.model[name].read(
            self.now(), from_seq, limit, max_bytes, nodes=nodes, tags=tags, meta=meta
        )
        assert_same(page, expected)
        # Progress: whoever is not caught up has moved, or was told why.
        assert page.caught_up or page.next_from_seq > from_seq or page.tombstone is not None
        return page.next_from_seq, page.caught_up

    @invariant()
    def same_topics(self) -> None:
        if hasattr(self, "lab"):
            assert list(self.lab.engine.names_after("", "")) == sorted(self.model)

    @invariant()
    def same_states(self) -> None:
        if not hasattr(self, "lab"):
            return
        now = self.now()
        for name, model in self.model.items():
            topic = self.lab.topic(name)
            self.lab.engine.refresh(topic)
            model.expire(now)
            assert topic.id == model.epoch
            assert topic.config == model.config
            assert (topic.head, topic.floor, topic.loss_line) == (model.head, model.floor, model.loss_line)
            assert (topic.live_count, topic.live_bytes) == (model.count, model.bytes)
            assert account(topic) == model.account()
            check_invariants(topic)
        totals = self.lab.engine.totals
        assert totals.records == sum(model.count for model in self.model.values())
        assert totals.bytes == sum(model.bytes for model in self.model.values())
        assert totals.pending_bytes == 0

    @invariant()
    def same_reads_from_the_start(self) -> None:
        for name in self.model:
            self.compare_read(name, 0, tags=True)
            model = self.model[name]
            self.compare_read(name, max(model.floor - 1, 0))


def check_invariants(topic: Topic) -> None:
    """What must hold in every reachable state, whatever the model says."""
    assert 1 <= topic.loss_line <= topic.floor <= topic.head + 1
    assert topic.live_count or not topic.live_bytes
    config = topic.config
    assert not config.cap_records or topic.live_count <= config.cap_records
    assert not config.cap_bytes or topic.live_bytes <= config.cap_bytes
    assert topic.bases == [run.base for run in topic.runs] == sorted(set(topic.bases))
    assert sum(run.live_count for run in topic.runs) == topic.live_count
    assert sum(run.live_bytes for run in topic.runs) == topic.live_bytes


def forget_volatile(model: ReferenceTopic, topic: Topic) -> None:
    """After a restart: ephemeral records are gone and announced, all others are as they were.

    How a volatile record that was already gone is accounted for depends on what a snapshot still knew of
    it; the engine's account is taken over once it is known to hide nothing and to bring nothing back.
    """
    live = {record.seq for record in model.live}
    announced = {seq for hole in topic.holes for seq in range(hole.first, hole.last + 1)}
    for record in model.records:
        if record.is_volatile and (record.seq in live or record.seq in announced):
            assert record.seq in announced, "an ephemeral record vanished in silence"
            record.fate = LOST
        else:
            assert record.seq not in announced
    model.cap_hi, model.ttl_hi, model.lost_hi = topic.cap_hi, topic.ttl_hi, topic.lost_hi
    model.interior_holes = [(hole.first, hole.last) for hole in topic.holes if hole.interior]


def tag_match(match: tuple[str, str] | None) -> TagMatch | None:
    return None if match is None else TagMatch(match[1], match[0] == "Glob")


def assert_same(page: Any, expected: Any) -> None:
    gap = page.tombstone
    assert records(page) == expected.records
    assert (page.next_from_seq, page.head_seq, page.earliest_seq, page.caught_up, page.lag) == (
        expected.next_from_seq,
        expected.head_seq,
        expected.earliest_seq,
        expected.caught_up,
        expected.lag,
    )
    assert (
        None
        if gap is None
        else (gap.gap_from, gap.gap_to, gap.reason, gap.missed_estimate, gap.earliest_seq, gap.head_seq)
    ) == expected.tombstone


def _scratch() -> str | None:
    """Memory when there is some: these histories restart thousands of times."""
    import os

    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
