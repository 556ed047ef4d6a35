"""Deletions that would block the loop: a thread searches the files before the deletion is submitted.

The order of the deletion among writes decides which records it removes, and it takes effect at once. The
search only makes that moment short. A dry run takes the same path, without the deletion.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from topics.core import ApiError, topic_not_found
from topics.log import (
    DeleteOutcome,
    DeleteQuery,
    Engine,
    Search,
    TagMatch,
    Topic,
    answer,
    delete_records,
    matches_many,
    preview_delete,
    wanted_records,
)

log = logging.getLogger("topics.deleting")

# Searching up to this many files takes no longer than starting a thread.
FEW_RUNS = 4
# Finding and deleting this many records in memory takes a few milliseconds.
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
        order = partial(delete_records, self._engine, topic, before, match, done, fail, seqs=seqs)
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
            done(preview_delete(self._engine, topic, before, match, seqs, search=search))

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
        return not matches_many(topic, match, MANY_MATCHES)

    async def _look_up(
        self, topic: Topic, wanted: DeleteQuery, act: Callable[..., None], fail: Callable[[ApiError], None]
    ) -> None:
        engine = self._engine
        search = Search(topic, wanted)
        try:
            for questions in search.questions():
                search.note(await asyncio.to_thread(answer, engine.store, questions, wanted))
            if wanted.match is not None and wanted.seqs is None:
                for _ in search.look_in_memory():
                    await asyncio.sleep(0)
            if engine.by_name.get(topic.name) is not topic:
                raise topic_not_found(topic.name)
            act(search=search)
        except ApiError as error:
            fail(error)
        except Exception:  # nothing awaits the task: the request has to fail here
            log.exception("a deletion failed")
            fail(ApiError("internal", "the deletion failed"))
