"""The engine and the reference model side by side: one call does the same to both and compares answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from msgspec import UNSET

from tests.log.harness import Lab, account, records
from tests.model.reference import LOST, Answer, Draft, ReferenceTopic, Refused
from tests.support.appending import append
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.log import delete_records, preview_delete
from topics.log.lifecycle import put_topic
from topics.log.read.filter import TagMatch
from topics.log.read.page import Page
from topics.log.read.render import Shape
from topics.log.remove.deletion import DeleteOutcome
from topics.log.seal.checkpoint import capture_topic
from topics.log.topic import Topic

Match = tuple[str, str]


@dataclass(frozen=True)
class KeyedWrite:
    drafts: list[Draft]
    key: str


# A write, with or without a key, a tag delete, a delete of these seqs, or a prefix delete so many seqs above
# the floor.
Step = list[Draft] | KeyedWrite | Match | frozenset[int] | int


def scratch_directory() -> str | None:
    """Memory when there is some: these histories restart thousands of times."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Twins:
    def __init__(self, directory: str, *, run_events: int, hot_bytes: int) -> None:
        self.lab = Lab(directory, segment_max_events=run_events, hot_bytes=hot_bytes)
        self.model: dict[str, ReferenceTopic] = {}
        self._dropped: set[str] = set()
        # Where a reader is that comes by now and then, in each topic: seq and epoch.
        self._places: dict[str, tuple[int, int]] = {}
        self._time_shown = self.lab.engine.now()

    def now(self) -> int:
        """Time as readers know it: it stands still while the clock is behind."""
        self._time_shown = max(self._time_shown, self.lab.clock.now_ms())
        return self._time_shown

    # --- writing ----------------------------------------------------------------------------------------

    def write(self, name: str, drafts: list[Draft], key: str | None = None) -> None:
        model = self.model.get(name)
        created = model is None
        if model is None:
            model = self._new(name, TopicConfig(), self.lab.engine.next_topic_id)
        expected: Any
        try:
            first, last, is_retry = model.write(drafts, self.now(), key)
            expected = (first, last, last, created, is_retry)
        except Refused as refusal:
            expected = refusal.code
        assert self._append(name, drafts, key) == expected

    def _append(self, name: str, drafts: list[Draft], key: str | None) -> Any:
        text = body(drafts, key)
        try:
            op = self.lab.commit(lambda done, fail: append(self.lab.engine, name, text, done, fail))
        except ApiError as refusal:
            return refusal.code
        return op.first_seq, op.last_seq, op.head_seq, op.created, op.deduped

    def put(self, name: str, config: TopicConfig) -> None:
        created = self.lab.commit(lambda done, fail: put_topic(self.lab.engine, name, config, done, fail))
        assert created is (name not in self.model)
        if created:
            self._new(name, config, self.lab.topic(name).id)
        else:
            self.model[name].configure(config, self.now())

    def delete(
        self, name: str, before: int | None, match: Match | None, seqs: list[int] | None = None
    ) -> None:
        """First as a dry run, which must change nothing and say exactly what the delete then does."""
        engine, topic, tag = self.lab.engine, self.lab.topic(name), tag_match(match)
        engine.refresh(topic)
        untouched = self._everything(name)
        foreseen = preview_delete(engine, topic, before, tag, seqs)
        assert self._everything(name) == untouched, "a dry run has changed something"
        deleted = self.lab.commit(
            lambda done, fail: delete_records(engine, topic, before, tag, done, fail, seqs=seqs)
        )
        assert deleted == self.model[name].delete(before, match, self.now(), seqs)
        assert foreseen == DeleteOutcome(deleted, topic.live_count, topic.live_bytes, topic.floor)

    def drop(self, name: str, *, if_empty: bool) -> None:
        model = self.model.get(name)
        if model is not None:
            model.expire(self.now())
        if if_empty and model is not None and model.count:
            with pytest.raises(ApiError, match="still holds records"):
                self.lab.drop(name, if_empty=True)
            return
        assert self.lab.drop(name, if_empty=if_empty) is (model is not None)
        if model is not None:
            self._dropped.add(name)
        self.model.pop(name, None)

    def _new(self, name: str, config: TopicConfig, epoch: int) -> ReferenceTopic:
        """Later than another one of that name, if there was one."""
        made = self.model[name] = ReferenceTopic(config, epoch, name not in self._dropped)
        return made

    def burst(self, steps: list[tuple[str, Step]]) -> None:
        """Several operations wait for the disk together: nothing of them is seen before it answers."""
        # Admission does not count on deletes that are still on their way; a sequential model would.
        steps = [(name, step) for name, step in steps if self._takes_bursts(name)]
        before = {name: self._seen(name) for name in self.model}
        failures: list[ApiError] = []
        results: dict[int, int] = {}
        floors = {name: model.floor for name, model in self.model.items()}
        for number, (name, step) in enumerate(steps):
            self._submit(name, step, floors[name], partial(results.__setitem__, number), failures.append)
        assert before == {name: self._seen(name) for name in self.model}
        self.lab.engine.queue.sync_now()
        expected: dict[int, int] = {}
        for number, (name, step) in enumerate(steps):
            model = self.model[name]
            if isinstance(step, list):
                expected[number] = model.write(step, self.now())[1]
            elif isinstance(step, KeyedWrite):
                expected[number] = model.write(step.drafts, self.now(), step.key)[1]
            elif isinstance(step, tuple):
                expected[number] = model.delete(None, step, self.now())
            elif isinstance(step, frozenset):
                expected[number] = model.delete(None, None, self.now(), [*step])
            else:
                # Clamped to what had been given out when it was asked for, which is the model's head now.
                expected[number] = model.delete(min(floors[name] + step, model.head + 1), None, self.now())
        assert not failures
        assert results == expected

    def _takes_bursts(self, name: str) -> bool:
        return name in self.model and self.model[name].config.discard == "old"

    def _submit(
        self,
        name: str,
        step: Step,
        floor: int,
        answered: Callable[[int], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        engine, topic = self.lab.engine, self.lab.topic(name)
        if isinstance(step, list):
            append(engine, name, body(step), lambda op: answered(op.last_seq), failed)
        elif isinstance(step, KeyedWrite):
            text = body(step.drafts, step.key)
            append(engine, name, text, lambda op: answered(op.last_seq), failed)
        elif isinstance(step, tuple):
            delete_records(engine, topic, None, tag_match(step), answered, failed)
        elif isinstance(step, frozenset):
            delete_records(engine, topic, None, None, answered, failed, seqs=[*step])
        else:
            delete_records(engine, topic, floor + step, None, answered, failed)

    def _seen(self, name: str) -> tuple[Any, ...]:
        page, topic = self.lab.diff(name), self.lab.topic(name)
        return page.rows, page.head_seq, page.earliest_seq, topic.live_count, topic.live_bytes

    def _everything(self, name: str) -> tuple[Any, ...]:
        topic, journal = self.lab.topic(name), self.lab.engine.journal
        return self._seen(name), account(topic), topic.last_read_ts, capture_topic(topic), journal.position

    # --- time, files, restarts --------------------------------------------------------------------------

    def move_clock(self, ms: int) -> None:
        self.lab.clock.advance(ms)
        assert self.lab.engine.now() == self.now()

    def restart(self, *, clean: bool, times: int = 1) -> None:
        for model in self.model.values():
            model.expire(self.now())
        floors = {name: self.lab.topic(name).floor for name in self.model}
        self.lab.restart(clean=clean)
        states = self.lab.states()
        for _ in range(times - 1):
            self.lab.restart(clean=clean)
            assert self.lab.states() == states, "recovering twice is not the same as once"
        for name, model in self.model.items():
            topic = self.lab.topic(name)
            assert topic.floor >= floors[name]
            # Whoever would have been told of a loss before the restart is told of one after it.
            for cursor in range(model.loss_line - 1):
                assert self.lab.gaps(name, cursor), "a loss is not announced any more"
            model.forget_volatile_keys()
            if model.has_volatile:
                forget_volatile(model, topic)

    # --- comparing --------------------------------------------------------------------------------------

    def compare_read(
        self,
        name: str,
        from_seq: int,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        *,
        nodes: frozenset[str] = frozenset(),
        tags: bool = False,
        meta: bool = True,
        epoch: int | None = None,
    ) -> Page:
        shape = Shape(tags=tags, meta=meta)
        page = self.lab.diff(name, from_seq, limit, max_bytes, nodes=nodes or None, shape=shape, epoch=epoch)
        expected = self.model[name].read(
            self.now(), from_seq, limit, max_bytes, nodes=nodes, tags=tags, meta=meta, epoch=epoch
        )
        assert_same(page, expected)
        # Progress: whoever is not caught up has moved, or was told why.
        assert page.caught_up or page.next_from_seq > from_seq or page.tombstone is not None
        return page

    def compare_walk(self, name: str, from_seq: int, limit: int, max_bytes: int, **options: Any) -> None:
        """Follow the cursor to the head."""
        while not (page := self.compare_read(name, from_seq, limit, max_bytes, **options)).caught_up:
            from_seq = page.next_from_seq

    def come_back(self, name: str, limit: int) -> None:
        """A reader goes on where it was, though that may have been in another life of the topic."""
        model = self.model[name]
        seq, epoch = self._places.get(name, (0, model.epoch))
        page = self.compare_read(name, seq, limit, epoch=epoch)
        assert epoch == model.epoch or page.tombstone is not None
        self._places[name] = (page.next_from_seq, model.epoch)

    def compare_states(self) -> None:
        assert list(self.lab.engine.names_after("", "")) == sorted(self.model)
        for name, model in self.model.items():
            topic = self.lab.topic(name)
            self.lab.engine.refresh(topic)
            model.expire(self.now())
            assert (topic.id, topic.first_life) == (model.epoch, model.first_life)
            assert topic.config == model.config
            assert (topic.head, topic.floor, topic.loss_line) == (model.head, model.floor, model.loss_line)
            assert (topic.live_count, topic.live_bytes) == (model.count, model.bytes)
            assert account(topic) == model.account()
            check_invariants(topic)
            self.compare_read(name, 0, tags=True)
            self.compare_read(name, model.floor - 1)
        totals = self.lab.engine.totals
        assert totals.records == sum(model.count for model in self.model.values())
        assert totals.bytes == sum(model.bytes for model in self.model.values())
        assert totals.pending_bytes == 0


def check_invariants(topic: Topic) -> None:
    """What must hold in every reachable state, whatever the model says."""
    assert 1 <= topic.loss_line <= topic.floor <= topic.head + 1
    assert topic.live_count or not topic.live_bytes
    config = topic.config
    assert not config.cap_records or topic.live_count <= config.cap_records
    assert not config.cap_bytes or topic.live_bytes <= config.cap_bytes
    assert topic.runs.bases == [run.base for run in topic.runs] == sorted(set(topic.runs.bases))
    assert all(low.last < high.base for low, high in zip(topic.runs, topic.runs[1:], strict=False))
    assert sum(run.live_count for run in topic.runs) == topic.live_count
    assert sum(run.live_bytes for run in topic.runs) == topic.live_bytes


def forget_volatile(model: ReferenceTopic, topic: Topic) -> None:
    """After a restart: ephemeral records are gone and announced, all others are as they were.

    How a record beside volatile ones that was already gone is accounted for depends on what a snapshot
    still knew of it, and on what else waited for the disk when it went; the engine's account is taken over
    once it is known to hide nothing and to bring nothing back.
    """
    announced = {seq for hole in topic.holes for seq in range(hole.first, hole.last + 1)}
    fates = {seq: kind for first, last, kind in account(topic) for seq in range(first, last + 1)}
    for record in model.records:
        if record.seq in announced:
            assert record.is_volatile, "a kept record was announced as lost"
            record.fate = LOST
        else:
            assert not (record.is_volatile and record.is_live), "an ephemeral record vanished in silence"
            assert not (record.is_live and record.seq in fates), "a kept record is gone"
            record.fate = fates.get(record.seq, record.fate)
    model.cap_hi, model.ttl_hi, model.lost_hi = topic.cap_hi, topic.ttl_hi, topic.lost_hi
    model.interior_holes = [(hole.first, hole.last) for hole in topic.holes if hole.interior]


def assert_same(page: Page, expected: Answer) -> None:
    gap = page.tombstone
    assert records(page) == expected.records
    assert (page.next_from_seq, page.head_seq, page.earliest_seq, page.caught_up, page.lag) == (
        expected.next_from_seq,
        expected.head_seq,
        expected.earliest_seq,
        expected.caught_up,
        expected.lag,
    )
    assert expected.tombstone == (
        None
        if gap is None
        else (
            gap.gap_from,
            gap.gap_to,
            gap.reason,
            gap.missed_estimate,
            gap.earliest_seq,
            gap.head_seq,
            None if gap.previous_epoch is UNSET else gap.previous_epoch,
        )
    )


def tag_match(match: Match | None) -> TagMatch | None:
    return None if match is None else TagMatch(match[1], match[0] == "Glob")


def body(drafts: list[Draft], key: str | None = None) -> bytes:
    request = {"records": [draft.to_json() for draft in drafts], "idempotency_key": key}
    return json.dumps(request, ensure_ascii=False).encode()
