"""Which live records a deletion names, run by run, looked up ahead of it.

A deletion has to know before it takes effect, and a large topic has thousands of files. So questions are put
on the loop, answered on any thread from the files, and the answers kept in a search. When the deletion is
applied, an answer counts if nothing has happened to its run since; only runs without one are looked up there
and then. Runs in memory have an index, so they are asked only where it would have very much to tell.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from topics.log.packing import Names
from topics.log.read.filter import TagMatch
from topics.log.run import HotColumns, Run
from topics.log.seal.segment_store import SegmentStore, entry_of
from topics.log.topic import Topic
from topics.storage import DEAD, I64, U32, RunEntry, Segment, SegmentDamaged

# Questions that are answered in one go: some milliseconds of work on a thread.
STEP_RUNS = 32
STEP_HOT_RUNS = 4
_LOOKED_AT = ("tags", "tag_order", "tag_starts", "data_lens", "meta_lens")


@dataclass(slots=True, frozen=True)
class DeleteQuery:
    """The records that a deletion names: those for which all of this holds. One of the last two is given."""

    # Seqs below this one.
    limit: int
    match: TagMatch | None = None
    # Exactly these seqs, ascending, all of them below the limit.
    seqs: I64 | None = None

    def runs(self, topic: Topic) -> Iterator[tuple[Run, I64 | None]]:
        """The runs that may have such records, in order, each with its part of the seqs."""
        if self.seqs is not None:
            return topic.runs.by_run(self.seqs[np.searchsorted(self.seqs, topic.floor) :])
        return ((run, None) for run in topic.runs if run.live_count and run.base < self.limit)

    def files(self, topic: Topic) -> list[Run]:
        """The runs whose files have to be asked."""
        return [run for run, _ in self.runs(topic) if self.is_in_file(run)]

    def is_in_file(self, run: Run) -> bool:
        """Return whether only the file of the run can tell what the run holds."""
        return run.hot is None and run.live_count > 0 and run.base < self.limit

    def indexes_in(self, run: Run) -> U32:
        """Of the seqs, those that the run has, as indexes."""
        assert self.seqs is not None
        first, stop = np.searchsorted(self.seqs, (run.base, run.base + run.count))
        return (self.seqs[first:stop] - run.base).astype(np.uint32)


@dataclass(slots=True, frozen=True)
class Question:
    """One run, as it was when the question was put."""

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

    indexes: I64 | U32
    size: int


NOTHING = Found(np.empty(0, np.uint32), 0)


def look_up(segment: Segment, question: Question, wanted: DeleteQuery) -> Found:
    """Find the live records of a sealed run that are wanted."""
    entry = entry_of(segment, question.run)
    try:
        segment.verify(entry, _LOOKED_AT)
        if wanted.match is None:
            indexes = wanted.indexes_in(question.run)
        else:
            indexes = _tagged(segment, entry, wanted.match)
            if wanted.seqs is not None:
                indexes = np.intersect1d(indexes, wanted.indexes_in(question.run), assume_unique=True)
        indexes = indexes[(indexes >= question.start) & (indexes < question.stop)]
        indexes = indexes[segment.flags(entry)[indexes] != DEAD]
        if question.unflipped:
            unflipped = np.frombuffer(question.unflipped, np.uint32)
            indexes = np.setdiff1d(indexes, unflipped, assume_unique=True)
        return Found(indexes, segment.size_of(entry, indexes)) if len(indexes) else NOTHING
    finally:
        segment.unload(entry)


def _tagged(segment: Segment, entry: RunEntry, match: TagMatch) -> U32:
    """Indexes of the records whose tag matches, ascending."""
    tags = segment.tags(entry)
    first = bisect_left(tags, match.value)
    if match.is_prefix:
        length = len(match.value)
        last = bisect_right(tags, match.value, key=lambda tag: tag[:length])
    else:
        last = bisect_right(tags, match.value)
    return np.sort(segment.tagged(entry, first + 1, last)) if first < last else np.empty(0, np.uint32)


def answer(
    store: SegmentStore, questions: list[Question], wanted: DeleteQuery
) -> list[tuple[Question, Found]]:
    """Look up runs in files, on any thread. The deletion itself announces those that are damaged."""
    answers: list[tuple[Question, Found]] = []
    # One file at a time, so that a question to very many does not take all descriptors there are.
    for number, of_file in groupby(questions, key=lambda question: question.segment):
        with suppress(SegmentDamaged), store.open_for_flips(number) as segment:
            for question in of_file:
                with suppress(SegmentDamaged):
                    answers.append((question, look_up(segment, question, wanted)))
    return answers


class Search:
    """Answers for one deletion that is about to be ordered."""

    def __init__(self, topic: Topic, wanted: DeleteQuery) -> None:
        self.wanted = wanted
        self._topic = topic
        self._answers: dict[Run, tuple[Question, Found]] = {}

    def questions(self) -> Iterator[list[Question]]:
        """Some at a time, about the runs that are sealed now."""
        runs = self.wanted.files(self._topic)
        for at in range(0, len(runs), STEP_RUNS):
            yield [
                Question.about(self._topic, run, self.wanted.limit)
                for run in runs[at : at + STEP_RUNS]
                if self.wanted.is_in_file(run)
            ]

    def note(self, answers: list[tuple[Question, Found]]) -> None:
        """Keep answers until the deletion is applied."""
        for question, found in answers:
            self._answers[question.run] = question, found

    def look_in_memory(self) -> Iterator[None]:
        """Do the same for runs in memory that are complete, a few at a time: worth it when many match."""
        runs = [run for run in self._topic.runs[:-1] if run.hot is not None and run.base < self.wanted.limit]
        for at in range(0, len(runs), STEP_HOT_RUNS):
            for run in runs[at : at + STEP_HOT_RUNS]:
                if run.hot is not None and run.hot.tags is not None and run.live_count:
                    question = Question.about(self._topic, run, self.wanted.limit)
                    self._answers[run] = question, look_in_memory(self._topic, run, self.wanted)
            yield

    def standing(self) -> dict[Run, Found]:
        """The answers about runs to which nothing has happened since."""
        return {
            run: found
            for run, (question, found) in self._answers.items()
            if question.still_stands(self._topic)
        }


def look_in_memory(topic: Topic, run: Run, wanted: DeleteQuery) -> Found:
    """Find the live records of a run in memory that match."""
    hot, match = run.hot, wanted.match
    assert hot is not None
    assert match is not None
    chosen = _carrying(hot, match)
    if chosen is None:
        return NOTHING
    start = max(topic.floor - run.base, 0)
    indexes = np.flatnonzero(chosen[start : wanted.limit - run.base]) + start
    if wanted.seqs is not None:
        indexes = np.intersect1d(indexes, wanted.indexes_in(run), assume_unique=True)
    indexes = run.unmarked(indexes)
    return Found(indexes, hot.size_of(indexes)) if len(indexes) else NOTHING


def matches_many(topic: Topic, match: TagMatch, many: int) -> bool:
    """Return whether a lookup in memory takes long: `many` names to compare, or as many records found."""
    tagged = [run.hot for run in topic.runs if run.hot is not None and run.hot.tags is not None]
    if match.is_prefix and sum(len(hot.tags.names) for hot in tagged if hot.tags is not None) >= many:
        return True
    found = 0
    for hot in tagged:
        chosen = _carrying(hot, match)
        found += 0 if chosen is None else int(np.count_nonzero(chosen))
        if found >= many:
            return True
    return False


def _carrying(hot: HotColumns, match: TagMatch) -> np.ndarray | None:
    """Return for each record whether its tag matches; None if no tag of the run does."""
    tags = hot.tags
    codes = [] if tags is None else _codes(tags, match)
    if tags is None or tags.codes is None or not codes:
        return None
    matching = np.zeros(len(tags.names) + 1, np.bool_)
    matching[codes] = True
    column: U32 = np.frombuffer(tags.codes, tags.codes.typecode)
    carrying: np.ndarray = column == codes[0] if len(codes) == 1 else matching[column]
    return carrying


def _codes(tags: Names, match: TagMatch) -> list[int]:
    if match.is_prefix:
        return [code for code, tag in enumerate(tags.names, 1) if tag.startswith(match.value)]
    code = tags.code(match.value)
    return [code] if code else []
