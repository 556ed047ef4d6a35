"""Deletes, which clients ask for: permanent, immediate, silent, and bounded by the head at that time.

    choose (which live records, run by run) ─▶ Delete frame ─▶ choose again, when it is committed ─▶ mark them

A dry run stops behind the first step. Journalled is what was asked for, not what was found; only where seqs
have to match a tag as well does the frame name those that do.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from topics.core import MAX_SEQ
from topics.log.engine import Engine
from topics.log.read.filter import TagMatch
from topics.log.remove import ledger
from topics.log.remove.removal import delete_live, expire, remove_front, settle_floor, surviving_damage
from topics.log.remove.search import DeleteQuery, Found, Question, Search, look_in_memory, look_up
from topics.log.run import Run
from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp, Fail, Op
from topics.storage import I64, U32, FrameDraft, Kind


class Selector(msgspec.Struct, array_like=True, gc=False):
    """What a Delete frame carries. `bound` is one past the last seq that existed when it was ordered."""

    bound: int
    before: int | None = None
    tag: str | None = None
    is_prefix: bool = False
    seqs: list[int] | None = None

    @property
    def limit(self) -> int:
        return self.bound if self.before is None else min(self.before, self.bound)

    @property
    def match(self) -> TagMatch | None:
        return None if self.tag is None else TagMatch(self.tag, self.is_prefix)


@dataclass(slots=True, frozen=True)
class DeleteOutcome:
    """What a delete takes or would take, and how the topic stands behind it."""

    deleted: int
    count: int
    bytes: int
    earliest_seq: int


def wanted_records(
    before: int | None, match: TagMatch | None, seqs: Sequence[int] | None = None
) -> DeleteQuery:
    """What a client has asked for, before the head has been looked at."""
    limit = MAX_SEQ if before is None else before
    return DeleteQuery(limit, match, None if seqs is None else np.array(_ascending(seqs, limit), np.int64))


# --- ordering it ------------------------------------------------------------------------------------------


def delete_records(
    engine: Engine,
    topic: Topic,
    before: int | None,
    match: TagMatch | None,
    done: Callable[[int], None],
    fail: Fail,
    *,
    seqs: Sequence[int] | None = None,
    search: Search | None = None,
) -> None:
    """Remove what exists now. The bound is the last seq given out, committed or not.

    `search` may know already what the files hold of it. Synced in every class that keeps records: what
    a client wanted gone must not come back because the power failed.
    """
    engine.queue.assign_pending()
    bound = topic.assigned + 1
    limit = bound if before is None else min(before, bound)
    if seqs is not None:
        named = _ascending(seqs, limit) if match is None else _carrying(topic, limit, match, seqs, search)
        selector = Selector(bound, seqs=named)
    elif match is not None:
        selector = Selector(bound, before, match.value, match.is_prefix)
    else:
        selector = Selector(bound, before)
    if topic.config.ttl_ms:
        engine.refresh(topic)
    now = engine.now()
    lines = topic.cap_hi, topic.ttl_hi
    frame = FrameDraft(Kind.DELETE, msgspec.msgpack.encode(selector), topic_id=topic.id, ts=now)

    def apply(op: Op) -> None:
        deleted = apply_delete(topic, selector, now, search)
        engine.note_moved_lines(topic, *lines)
        done(deleted)

    keeps = topic.config.durability != "ephemeral"
    engine.queue.submit(CallbackOp([frame], topic, apply, fail, sync=keeps))


def _ascending(seqs: Iterable[int], limit: int) -> list[int]:
    # An acknowledgement names a few: numpy takes longer to get ready for them than they take to sort.
    ordered = sorted({*seqs})
    del ordered[bisect_left(ordered, limit) :]
    return ordered


@surviving_damage
def _carrying(
    topic: Topic, limit: int, match: TagMatch, seqs: Sequence[int], search: Search | None
) -> list[int]:
    """Return those of the seqs that carry the tag: a frame that names seqs names no tag."""
    chosen = choose(topic, DeleteQuery(limit, match, np.array(_ascending(seqs, limit), np.int64)), search)
    return [run.base + index for run, found in chosen for index in found.indexes.tolist()]


@surviving_damage
def apply_delete(topic: Topic, selector: Selector, now: int, search: Search | None = None) -> int:
    """Delete what the selector names; returns how many records were live until now."""
    if topic.config.ttl_ms:
        expire(topic, now)
    limit, match = selector.limit, selector.match
    if selector.seqs is None and match is None:
        topic.raise_delete_line(limit)
        floor = topic.floor
        removed = remove_front(topic, limit - 1, ledger.DELETED)[0] if limit > floor else 0
        topic.note_gone(floor, topic.floor - 1, now, now)
        return removed
    seqs = None if selector.seqs is None else np.array(_ascending(selector.seqs, limit), np.int64)
    # Chosen before anything changes: a segment found damaged on the way starts the whole deletion again.
    chosen = choose(topic, DeleteQuery(limit, None if seqs is not None else match, seqs), search)
    deleted = 0
    for run, found in chosen:
        deleted += delete_live(topic, run, found.indexes, found.size)
        if match is not None or search is not None:
            # Its file was asked, past what is kept ready for readers.
            topic.store.unload(run)
    if deleted:
        settle_floor(topic)
        (lowest, first), (highest, last) = chosen[0], chosen[-1]
        topic.note_gone(lowest.base + int(first.indexes[0]), highest.base + int(last.indexes[-1]), now, now)
    return deleted


def note_unfound(topic: Topic, selector: Selector) -> None:
    """For recovery: what is layered on the topic hears of deleted seqs whose records were not found.

    By tag this cannot be told: what tags they had is lost with them.
    """
    layer = topic.extension
    if layer is None or selector.tag is not None:
        return
    if selector.seqs is None:
        last = selector.limit - 1
        layer.note_deleted(topic.seq_base, last, last - topic.seq_base + 1)
        return
    for seq in selector.seqs:
        if topic.runs.run_at(seq) is None:
            layer.note_deleted(seq, seq, 1)


# --- looking at it first ----------------------------------------------------------------------------------


def preview_delete(
    engine: Engine,
    topic: Topic,
    before: int | None,
    match: TagMatch | None,
    seqs: Sequence[int] | None = None,
    *,
    search: Search | None = None,
) -> DeleteOutcome:
    """What the delete would do if it were ordered and committed now. Like any reader it lets time have its
    effect first; beyond that nothing changes."""
    engine.refresh(topic)
    limit = topic.head + 1 if before is None else min(before, topic.head + 1)
    wanted = DeleteQuery(limit, match, None if seqs is None else np.array(_ascending(seqs, limit), np.int64))
    return _preview(topic, wanted, search)


@surviving_damage
def _preview(topic: Topic, wanted: DeleteQuery, search: Search | None) -> DeleteOutcome:
    if wanted.match is None and wanted.seqs is None:
        count, size = _live_below(topic, wanted.limit)
        earliest = topic.first_live(max(wanted.limit, topic.floor))
    else:
        chosen = choose(topic, wanted, search)
        count = sum([len(found.indexes) for _, found in chosen])
        size = sum([found.size for _, found in chosen])
        earliest = _first_left(topic, {run: found.indexes for run, found in chosen})
    return DeleteOutcome(count, topic.live_count - count, topic.live_bytes - size, earliest)


def _live_below(topic: Topic, limit: int) -> tuple[int, int]:
    """How many live records lie below a seq, and their size."""
    count = size = 0
    for run, start, stop in topic.runs.stretches(topic.floor, limit):
        if run.live_count:
            topic.load_marks(run)
            in_run = run.live_in(start, stop, topic.store.columns)
            count, size = count + in_run[0], size + in_run[1]
    return count, size


def _first_left(topic: Topic, going: dict[Run, I64 | U32]) -> int:
    """The lowest live seq that does not go, or head + 1."""
    for run, start, stop in topic.runs.stretches(topic.floor, topic.head + 1):
        gone = going.get(run)
        if run.live_count > (0 if gone is None else len(gone)):
            topic.load_marks(run)
            marks = bytearray(run.count) if run.dead is None else bytearray(run.dead)
            if gone is not None:
                np.frombuffer(marks, np.uint8)[gone] = 1
            found = marks.find(0, start, stop)
            if found >= 0:
                return run.base + found
    return topic.head + 1


# --- choosing ---------------------------------------------------------------------------------------------


def choose(topic: Topic, wanted: DeleteQuery, search: Search | None = None) -> list[tuple[Run, Found]]:
    """Return the live records that are wanted, run by run. Nothing is changed."""
    answers = {} if search is None else search.standing()
    chosen: list[tuple[Run, Found]] = []
    for run, seqs in wanted.runs(topic):
        found = answers.get(run) or _find(topic, run, wanted, seqs)
        if len(found.indexes):
            chosen.append((run, found))
    return chosen


def _find(topic: Topic, run: Run, wanted: DeleteQuery, seqs: I64 | None) -> Found:
    """Look up the wanted records of one run, which has these seqs of them, or any if there is a tag only."""
    hot = run.hot
    if wanted.match is not None:
        if hot is not None:
            return look_in_memory(topic, run, wanted)
        question = Question.about(topic, run, wanted.limit)
        return look_up(topic.store.segment(question.segment), question, wanted)
    assert seqs is not None
    # In memory a whole view would cost more than the deletion of a few.
    columns = topic.store.columns(run) if hot is None else hot
    indexes = run.unmarked(seqs - run.base)
    return Found(indexes, columns.size_of(indexes) if len(indexes) else 0)
