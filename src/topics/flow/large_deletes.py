"""Deletions that would block the loop: a thread searches the files before the deletion is submitted.

The order of the deletion among writes decides which records it removes, and it takes effect at once. The
search only makes that moment short. A dry run takes the same path, without the deletion.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from topics.core import ApiError, topic_not_found
from topics.log import DeleteOutcome, DeleteQuery, Engine, Search, TagMatch, Topic, answer, wanted_records

log = logging.getLogger("topics.deleting")

# Searching up to this many files takes no longer than starting a thread.
FEW_RUNS = 4
# Deleting this many records in memory takes a few milliseconds.
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
        if self._is_quick(topic, before, match, seqs):
            order()
        else:
            self._look_up_first(topic, wanted_records(before, match, seqs), order, fail)

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

        if self._is_quick(topic, before, match, seqs):
            look()
        else:
            self._look_up_first(topic, wanted_records(before, match, seqs), look, fail)

    def _look_up_first(
        self, topic: Topic, wanted: DeleteQuery, act: Callable[..., None], fail: Callable[[ApiError], None]
    ) -> None:
        """Call `act` later, with a search that knows which records the files hold."""
        task = asyncio.get_running_loop().create_task(self._look_up(topic, wanted, act, fail))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _is_quick(
        topic: Topic, before: int | None, match: TagMatch | None, seqs: Sequence[int] | None
    ) -> bool:
        if match is None and seqs is None:
            return True
        has_few_files = len(topic.runs) <= FEW_RUNS or (
            len(wanted_records(before, match, seqs).files(topic)) <= FEW_RUNS
        )
        if not has_few_files:
            return False
        if match is None or seqs is not None:
            return True
        if match.is_prefix and topic.tags.unsorted > 1:
            return False
        return topic.tags.count(match, MANY_MATCHES) < MANY_MATCHES

    async def _look_up(
        self, topic: Topic, wanted: DeleteQuery, act: Callable[..., None], fail: Callable[[ApiError], None]
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
        except Exception:  # nothing awaits the task: the request has to fail here
            log.exception("a deletion failed")
            fail(ApiError("internal", "the deletion failed"))

    def _forget_tags(self, topic: Topic, match: TagMatch, stop: int) -> None:
        """Remove the postings of an applied deletion in steps: there may be as many tags as records."""

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
