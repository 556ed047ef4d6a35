"""Which records a tag predicate matches, run by run, looked up ahead of a deletion.

A deletion has to know before it takes effect, and a large topic has thousands of files. So questions are put
on the loop, answered on any thread from the files, and the answers kept in a search. When the deletion is
applied, an answer counts if nothing has happened to its run since; only runs without one are looked up there
and then. Runs in memory have an index, so they are asked only where it would have very much to tell.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from topics.log.remove.tags import TagMatch
from topics.log.run import HotColumns, Run
from topics.log.seal.segment_store import SegmentStore
from topics.log.topic import Topic
from topics.storage import DEAD, U32, RunEntry, Segment, SegmentDamaged

# Questions that are answered in one go: some milliseconds of work on a thread.
STEP_RUNS = 32
STEP_HOT_RUNS = 4
_LOOKED_AT = ("tags", "tag_order", "tag_starts", "data_lens", "meta_lens")
_NOTHING = np.empty(0, np.uint32)


@dataclass(slots=True, frozen=True)
class Question:
    """One sealed run, as it was when the question was put."""

    run: Run
    # The file it lies in; 0 for one in memory, whether or not a file has it too.
    segment: int
    count: int
    dead_count: int
    unflipped: bytes
    start: int
    stop: int

    @classmethod
    def about(cls, topic: Topic, run: Run, limit: int) -> "Question":
        at = None if run.hot is not None else run.sealed
        return cls(
            run,
            0 if at is None else at.segment,
            run.count,
            run.dead_count,
            b"" if at is None else at.unflipped.tobytes(),
            max(topic.floor - run.base, 0),
            min(limit - run.base, run.count),
        )

    def still_stands(self, topic: Topic) -> bool:
        run = self.run
        return (
            (run.hot is not None or run.sealed is not None)
            and (not self.segment or (run.sealed is not None and run.sealed.segment == self.segment))
            and (run.count, run.dead_count) == (self.count, self.dead_count)
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
    answers: list[Found | None] = []
    # One file at a time, so that a question to very many does not take all descriptors there are.
    for number, of_file in groupby(questions, key=lambda question: question.segment):
        answers += _answer_from(store, number, [*of_file], match)
    return answers


def _answer_from(
    store: SegmentStore, number: int, questions: list[Question], match: TagMatch
) -> list[Found | None]:
    try:
        with store.open_for_flips(number) as segment:
            return [_look_up_if_intact(segment, question, match) for question in questions]
    except SegmentDamaged:
        return [None] * len(questions)


def _look_up_if_intact(segment: Segment, question: Question, match: TagMatch) -> Found | None:
    try:
        return look_up(segment, question, match)
    except SegmentDamaged:
        return None


class TagSearch:
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

    def look_in_memory(self) -> Iterator[None]:
        """Do the same for runs in memory that are complete, a few at a time: worth it when many match."""
        runs = [run for run in self._topic.runs[:-1] if run.hot is not None and run.base < self._limit]
        for at in range(0, len(runs), STEP_HOT_RUNS):
            for run in runs[at : at + STEP_HOT_RUNS]:
                if run.hot is not None and run.hot.tag_codes is not None and run.live_count:
                    question = Question.about(self._topic, run, self._limit)
                    self._answers[run] = question, _look_in(run.hot, question, self.match)
            yield

    def standing(self) -> dict[Run, Found]:
        """The answers about runs to which nothing has happened since."""
        return {
            run: found
            for run, (question, found) in self._answers.items()
            if question.still_stands(self._topic)
        }


def _look_in(hot: HotColumns, question: Question, match: TagMatch) -> Found:
    columns = hot.view()
    assert columns.tag_codes is not None
    codes = [code for code, tag in enumerate(columns.tags, 1) if match.matches(tag)]
    if not codes:
        return Found(_NOTHING, 0)
    wanted = np.zeros(len(columns.tags) + 1, np.bool_)
    wanted[codes] = True
    chosen = wanted[columns.tag_codes]
    if question.run.dead is not None:
        chosen &= np.frombuffer(question.run.dead, np.uint8) == 0
    chosen[: question.start] = chosen[question.stop :] = False
    indexes = np.flatnonzero(chosen).astype(np.uint32)
    return Found(indexes, columns.size_of(indexes))
