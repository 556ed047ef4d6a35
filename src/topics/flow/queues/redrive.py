"""Dead letters go back to the queues that they came from: appended there and deleted here by one group.

The journal has both in one frame, so a job is in exactly one of the two places, whatever happens on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from topics import codec
from topics.core import MAX_READ_BYTES, ApiError, topic_not_found
from topics.flow.queues.dead_letters import origin_of, without_origin
from topics.flow.queues.jobs import live_from, read_jobs, read_records
from topics.log import Engine, Fail, Selector, TagMatch, Topic, append_group, apply_delete
from topics.storage import FrameDraft, Kind, Records

# Letters that are looked at before others have their turn, and in all.
STEP_LETTERS = 1000
MOST_LETTERS = 100_000


@dataclass(slots=True)
class LetterBatch:
    """Letters that go to one queue."""

    target: Topic
    letters: Records

    @property
    def size(self) -> int:
        return sum(map(len, self.letters.data))


class Redrive:
    """One walk through the letters that were there when it began."""

    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        moving: set[int],
        find_target: Callable[[str | None], Topic | None],
        most: int | None = None,
        match: TagMatch | None = None,
    ) -> None:
        """`find_target` knows the queue for a letter of this origin; without one, the letter stays.

        `moving`: seqs of this topic that are on their way already, by this walk or another.
        """
        self.moved = 0
        self.skipped: list[int] = []
        self._engine = engine
        self._topic = topic
        self._moving = moving
        self._find_target = find_target
        self._left = MOST_LETTERS if most is None else most
        self._match = match
        self._next = topic.floor
        self._stop_before = topic.head + 1
        self._looked_at = 0

    @property
    def is_over(self) -> bool:
        spent = not self._left or self._looked_at >= MOST_LETTERS
        return spent or self._topic.dropped or self._next >= self._stop_before

    @property
    def has_more(self) -> bool:
        """There are letters that were not looked at."""
        return bool(live_from(self._topic, self._next, 1, self._stop_before))

    def step(self) -> list[LetterBatch]:
        """The next letters, by where they go. Each part has to be moved."""
        topic = self._topic
        self._engine.refresh(topic)
        seqs = live_from(topic, self._next, min(STEP_LETTERS, self._left), self._stop_before)
        jobs = read_jobs(topic, seqs, MAX_READ_BYTES) if seqs else []
        self._looked_at += len(jobs)
        self._next = jobs[-1].seq + 1 if jobs else self._stop_before
        letters = read_records(topic, [job.seq for job in jobs])
        held = self._held() | self._moving
        by_target: dict[Topic, list[int]] = {}
        nothing = [None] * len(letters)
        told = zip(letters.seqs.tolist(), letters.tags or nothing, letters.metas or nothing, strict=True)
        for index, (seq, tag, meta) in enumerate(told):
            if self._match is not None and not self._match.matches(tag):
                continue
            target = self._find_target(origin_of(meta))
            if target is None or seq in held:
                self.skipped.append(seq)
            else:
                by_target.setdefault(target, []).append(index)
        parts = [
            LetterBatch(target, letters.take(np.array(indexes))) for target, indexes in by_target.items()
        ]
        self._left -= sum(len(part.letters) for part in parts)
        return parts

    def _held(self) -> set[int]:
        """Where letters are jobs themselves: a worker has some of them."""
        if not self._topic.config.is_queue:
            return set()
        queue = self._topic.extension
        queue.refresh()
        return {*queue.table.leases, *queue.table.moving}

    def move(self, part: LetterBatch, done: Callable[[], None], fail: Fail) -> None:
        """Raises before anything changed when the queue refuses."""
        engine, topic = self._engine, self._topic
        if engine.by_name.get(part.target.name) is not part.target:
            raise topic_not_found(part.target.name)
        seqs: list[int] = part.letters.seqs.tolist()
        now = engine.now()
        selector = Selector(topic.assigned + 1, seqs=seqs)
        lines = topic.cap_hi, topic.ttl_hi

        def leave(_: object) -> FrameDraft:
            payload = msgspec.msgpack.encode(selector)
            return FrameDraft(Kind.DELETE, payload, topic_id=topic.id, ts=now)

        def moved() -> None:
            apply_delete(topic, selector, now)
            engine.note_moved_lines(topic, *lines)
            self._moving.difference_update(seqs)
            self.moved += len(seqs)
            done()

        def failed(error: ApiError) -> None:
            self._moving.difference_update(seqs)
            fail(error)

        letters = part.letters
        metas = None if letters.metas is None else [without_origin(meta) for meta in letters.metas]
        write = codec.from_values(letters.data, metas, letters.nodes, letters.tags)
        sync = topic.config.durability == "fsync"
        writes = [(part.target, [write])]
        self._moving.update(seqs)
        try:
            append_group(engine, writes, now, leave, moved, failed, sync=sync, others=(topic,))
        except ApiError:
            self._moving.difference_update(seqs)
            raise
