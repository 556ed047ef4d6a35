"""Which sealed records a tag predicate matches: looked up in the files, with nothing but what it takes.

A deletion has to know before it takes effect, and a large topic has thousands of files. So the questions are
put on the loop, answered on any thread, and the answers kept in a survey. When the deletion is applied, an
answer counts if nothing has happened to its run since; only runs without one are looked up there and then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from topics.log.run import Run
from topics.log.segments import SegmentStore
from topics.log.tags import TagMatch
from topics.log.topic import Topic
from topics.storage.columns import U32
from topics.storage.segment import DEAD, RunEntry, Segment, SegmentDamaged

# Questions that are answered in one go: some milliseconds of work on a thread.
STEP_RUNS = 32
_LOOKED_AT = ("tags", "tag_order", "tag_starts", "data_lens", "meta_lens")
_NOTHING = np.empty(0, np.uint32)


@dataclass(slots=True, frozen=True)
class Question:
    """One sealed run, as it was when the question was put."""

    run: Run
    segment: int
    dead_count: int
    unflipped: bytes
    start: int
    stop: int

    @classmethod
    def about(cls, topic: Topic, run: Run, limit: int) -> Question:
        assert run.sealed is not None
        return cls(
            run,
            run.sealed.segment,
            run.dead_count,
            run.sealed.unflipped.tobytes(),
            max(topic.floor - run.base, 0),
            min(limit - run.base, run.count),
        )

    def still_stands(self, topic: Topic) -> bool:
        run = self.run
        return (
            run.sealed is not None
            and run.sealed.segment == self.segment
            and run.dead_count == self.dead_count
            and max(topic.floor - run.base, 0) == self.start
        )


@dataclass(slots=True, frozen=True)
class Found:
    """Indexes of the live records that match, ascending, and what they count for."""

    indexes: U32
    size: int


def concerns(run: Run, limit: int) -> bool:
    """Whether the run's file has to be asked about a deletion of what lies below `limit`."""
    return run.hot is None and run.live_count > 0 and run.base < limit


def look_up(segment: Segment, question: Question, match: TagMatch) -> Found:
    run = question.run
    entry = segment.entry(run.topic_id, run.base)
    try:
        return _live_matches(segment, entry, question, match)
    finally:
        segment.unload(entry)


def _live_matches(segment: Segment, entry: RunEntry, question: Question, match: TagMatch) -> Found:
    segment.verify(entry, _LOOKED_AT)
    tags = segment.tags(entry)
    first = bisect_left(tags, match.value)
    if match.is_prefix:
        length = len(match.value)
        last = bisect_right(tags, match.value, key=lambda tag: tag[:length])
    else:
        last = bisect_right(tags, match.value)
    if first >= last:
        return Found(_NOTHING, 0)
    indexes = np.sort(segment.tagged(entry, first + 1, last))
    indexes = indexes[(indexes >= question.start) & (indexes < question.stop)]
    indexes = indexes[segment.flags(entry)[indexes] != DEAD]
    if question.unflipped:
        indexes = np.setdiff1d(indexes, np.frombuffer(question.unflipped, np.uint32), assume_unique=True)
    return Found(indexes, segment.size_of(entry, indexes))


def answer(store: SegmentStore, questions: list[Question], match: TagMatch) -> list[Found | None]:
    """Any thread, with handles of its own; None for a damaged file, which is not announced from here."""
    opened: dict[int, Segment] = {}
    answers: list[Found | None] = []
    try:
        for question in questions:
            try:
                if question.segment not in opened:
                    opened[question.segment] = store.open_for_flips(question.segment)
                answers.append(look_up(opened[question.segment], question, match))
            except SegmentDamaged:
                answers.append(None)
    finally:
        for segment in opened.values():
            segment.close()
    return answers


class Survey:
    """Answers for one deletion that is about to be ordered."""

    def __init__(self, topic: Topic, match: TagMatch, limit: int) -> None:
        self.match = match
        self._topic = topic
        self._limit = limit
        self._answers: dict[Run, tuple[Question, Found]] = {}

    def questions(self) -> Iterator[list[Question]]:
        """Some at a time, about the runs that are sealed now."""
        runs = [run for run in self._topic.runs if concerns(run, self._limit)]
        for at in range(0, len(runs), STEP_RUNS):
            yield [
                Question.about(self._topic, run, self._limit)
                for run in runs[at : at + STEP_RUNS]
                if concerns(run, self._limit)
            ]

    def note(self, questions: list[Question], answers: list[Found | None]) -> None:
        for question, found in zip(questions, answers, strict=True):
            if found is not None:
                self._answers[question.run] = question, found

    def found(self, run: Run) -> Found | None:
        """The answer about a run; None when there is none, or none that still stands."""
        question, found = self._answers.get(run, (None, None))
        return found if question is not None and question.still_stands(self._topic) else None
