"""Deletes, which clients ask for: permanent, immediate, silent, and bounded by the head at that time."""

from collections.abc import Callable, Container

import msgspec
import numpy as np

from topics.log.core import Core
from topics.log.remove import ledger
from topics.log.remove.removal import delete_at, delete_live, remove_front, settle_floor, surviving_damage
from topics.log.remove.retention import expire
from topics.log.remove.tag_search import Found, Question, TagSearch, concerns, look_up
from topics.log.remove.tags import TagMatch
from topics.log.run import Run
from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp, Fail, Op
from topics.storage import I64, Kind


class Selector(msgspec.Struct, array_like=True, gc=False):
    """What a Delete frame carries. `bound` is one past the last seq that existed when it was ordered."""

    bound: int
    before: int | None = None
    tag: str | None = None
    is_prefix: bool = False
    seqs: list[int] | None = None

    @property
    def match(self) -> TagMatch | None:
        return None if self.tag is None else TagMatch(self.tag, self.is_prefix)


def delete_records(
    core: Core,
    topic: Topic,
    before: int | None,
    match: TagMatch | None,
    done: Callable[[int], None],
    fail: Fail,
    *,
    search: TagSearch | None = None,
) -> None:
    """Remove what exists now. The bound is the last seq given out, committed or not.

    `search` may know already what the files hold of it. Synced in every class that keeps records: what
    a client wanted gone must not come back because the power failed.
    """
    selector = Selector(
        topic.assigned + 1,
        before,
        None if match is None else match.value,
        match is not None and match.is_prefix,
    )
    keeps = topic.config.durability != "ephemeral"
    submit_delete(core, topic, selector, lambda op, deleted: done(deleted), fail, search=search, sync=keeps)


def submit_delete(
    core: Core,
    topic: Topic,
    selector: Selector,
    done: Callable[[Op, int], None],
    fail: Fail,
    *,
    search: TagSearch | None = None,
    sync: bool = False,
) -> None:
    """`sync`: even if the topic's class does not ask for it."""
    core.refresh(topic)
    now = core.now()
    lines = topic.cap_hi, topic.ttl_hi
    frame = core.journal.frame(Kind.DELETE, msgspec.msgpack.encode(selector), topic_id=topic.id, ts=now)

    def apply(op: Op) -> None:
        deleted = apply_delete(topic, selector, now, search)
        core.note_moved_lines(topic, *lines)
        done(op, deleted)

    sync = sync or topic.config.durability == "fsync"
    core.queue.submit(CallbackOp(frame, topic, apply, fail, sync=sync))


def apply_delete(topic: Topic, selector: Selector, now: int, search: TagSearch | None = None) -> int:
    def act() -> int:
        expire(topic, now)
        return _apply(topic, selector, search)

    return surviving_damage(topic, act)


def _apply(topic: Topic, selector: Selector, search: TagSearch | None = None) -> int:
    """Delete what the selector names; returns how many records were live until now."""
    limit = selector.bound if selector.before is None else min(selector.before, selector.bound)
    match = selector.match
    if selector.seqs is not None:
        # An acknowledgement names a few: numpy takes longer to get ready for them than they take to sort.
        deleted = _delete_seqs(topic, np.array(sorted({s for s in selector.seqs if s < limit}), np.int64))
    elif match is not None:
        deleted = _delete_tagged(topic, match, limit, search)
    else:
        topic.raise_delete_line(limit)
        return remove_front(topic, limit - 1, ledger.DELETED)[0] if limit > topic.floor else 0
    if deleted:
        settle_floor(topic, topic.floor)
    return deleted


def _delete_seqs(topic: Topic, seqs: I64, *, answered: Container[Run] = ()) -> int:
    """Delete by seq, ascending. Nothing is done about runs in `answered`."""
    deleted = 0
    for run, inside in topic.by_run(seqs[np.searchsorted(seqs, topic.floor) :]):
        if run not in answered:
            deleted += delete_at(topic, run, inside - run.base)
    return deleted


def _delete_tagged(topic: Topic, match: TagMatch, limit: int, search: TagSearch | None) -> int:
    answers = {} if search is None else search.standing()
    # Looked up before anything changes: a segment found damaged here starts the whole deletion again.
    for run in topic.runs:
        if run not in answers and concerns(run, limit):
            answers[run] = _in_file(topic, run, match, limit)
    unanswered = next((run.base for run in topic.runs if run.hot is not None and run not in answers), limit)
    seqs = topic.tags.matching(match, unanswered)
    topic.tags.forget(match, limit)
    deleted = _delete_seqs(topic, np.sort(seqs[seqs < limit], kind="stable"), answered=answers)
    for run, found in answers.items():
        if delete_live(topic, run, found.indexes, found.size):
            deleted += len(found.indexes)
            topic.store.unload(run)
    return deleted


def _in_file(topic: Topic, run: Run, match: TagMatch, limit: int) -> Found:
    question = Question.about(topic, run, limit)
    return look_up(topic.store.segment(question.segment), question, match)
