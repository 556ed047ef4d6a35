"""Deletions that would keep the loop busy: files are asked on a thread before the deletion is ordered.

What the deletion removes is decided when it is ordered against writes, as always, and it takes effect at
once; what was looked up ahead only makes that moment short. A dry run takes the same way, up to there.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from topics.log import DeleteOutcome, Engine, Search, TagMatch, Topic, Wanted, answer, wanted_records
from topics.values import ApiError, topic_not_found

log = logging.getLogger("topics.deleting")

# So many files are asked as quickly as a thread is.
FEW_RUNS = 4
# So many records in memory are deleted in a few milliseconds.
MANY_MATCHES = 50_000


class Deletions:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()

    def delete(
        self,
        topic: Topic,
        before: int | None,
        match: TagMatch | None,
        done: Callable[[int], None],
        fail: Callable[[ApiError], None],
        *,
        seqs: Sequence[int] | None = None,
    ) -> None:
        order = partial(self._engine.delete_records, topic, before, match, done, fail, seqs=seqs)
        self._when_looked_up(topic, wanted_records(before, match, seqs), order, fail)

    def preview(
        self,
        topic: Topic,
        before: int | None,
        match: TagMatch | None,
        done: Callable[[DeleteOutcome], None],
        fail: Callable[[ApiError], None],
        *,
        seqs: Sequence[int] | None = None,
    ) -> None:
        def look(search: Search | None = None) -> None:
            done(self._engine.preview_delete(topic, before, match, seqs, search=search))

        self._when_looked_up(topic, wanted_records(before, match, seqs), look, fail)

    def _when_looked_up(
        self, topic: Topic, wanted: Wanted, act: Callable[..., None], fail: Callable[[ApiError], None]
    ) -> None:
        """Call `act`, now or with a search that knows what the files hold."""
        if self._is_quick(topic, wanted):
            act()
            return
        task = asyncio.get_running_loop().create_task(self._look_up(topic, wanted, act, fail))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _is_quick(topic: Topic, wanted: Wanted) -> bool:
        match = wanted.match
        if match is None and wanted.seqs is None:
            return True
        if len(wanted.files(topic)) > FEW_RUNS:
            return False
        if match is None or wanted.seqs is not None:
            return True
        if match.is_prefix and topic.tags.unsorted > 1:
            return False
        return topic.tags.count(match, MANY_MATCHES) < MANY_MATCHES

    async def _look_up(
        self, topic: Topic, wanted: Wanted, act: Callable[..., None], fail: Callable[[ApiError], None]
    ) -> None:
        engine, match = self._engine, wanted.match
        search = Search(topic, wanted, partial(self._forget_tags, topic))
        try:
            for questions in search.questions():
                answers = await asyncio.to_thread(answer, engine.store, questions, wanted)
                search.note(questions, answers)
            if match is not None and wanted.seqs is None:
                await self._look_in_memory(topic, search, match)
            if engine.by_name.get(topic.name) is not topic:
                raise topic_not_found(topic.name)
            act(search=search)
        except ApiError as error:
            fail(error)
        except Exception:  # the task is not awaited: the request has to hear of it here
            log.exception("a deletion failed")
            fail(ApiError("internal", "the deletion failed"))

    def _forget_tags(self, topic: Topic, match: TagMatch, stop: int) -> None:
        """It is applied. There may be as many tags as records: their postings go in turns."""

        async def forget() -> None:
            for _ in topic.tags.forget_in_steps(match, stop):
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(forget())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _look_in_memory(topic: Topic, search: Search, match: TagMatch) -> None:
        if match.is_prefix:
            for _ in topic.tags.sort_in_steps():
                await asyncio.sleep(0)
        if topic.tags.count(match, MANY_MATCHES) >= MANY_MATCHES:
            for _ in search.look_in_memory():
                await asyncio.sleep(0)
