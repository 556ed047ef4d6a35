"""Removal somebody asked for: permanent, immediate, silent, and bounded by the head at the time of asking."""

from __future__ import annotations

from collections.abc import Container

import msgspec
import numpy as np

from topics.log.remove import ledger
from topics.log.remove.removal import delete_at, delete_live, remove_front, settle_floor
from topics.log.remove.tag_search import Found, Question, TagSearch, concerns, look_up
from topics.log.remove.tags import TagMatch
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage.columns import I64


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


def apply(topic: Topic, selector: Selector, search: TagSearch | None = None) -> int:
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
