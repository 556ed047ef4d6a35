"""Deletions by tag that would keep the loop busy: files are asked on a thread before the deletion is ordered.

What the deletion removes is decided when it is ordered against writes, as always, and it takes effect at
once; what was looked up ahead only makes that moment short.
"""

import asyncio
import logging
from collections.abc import Callable

from topics.log import Engine, TagMatch, TagSearch, Topic, answer, concerns
from topics.values import MAX_SEQ, ApiError, topic_not_found

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
    ) -> None:
        limit = MAX_SEQ if before is None else before
        if match is None or self._is_quick(topic, match, limit):
            self._engine.delete_records(topic, before, match, done, fail)
            return
        search = TagSearch(topic, match, limit)
        task = asyncio.get_running_loop().create_task(self._delete(topic, before, search, done, fail))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _is_quick(topic: Topic, match: TagMatch, limit: int) -> bool:
        if sum(concerns(run, limit) for run in topic.runs) > FEW_RUNS:
            return False
        if match.is_prefix and topic.tags.unsorted > 1:
            return False
        return topic.tags.count(match) < MANY_MATCHES

    async def _delete(
        self,
        topic: Topic,
        before: int | None,
        search: TagSearch,
        done: Callable[[int], None],
        fail: Callable[[ApiError], None],
    ) -> None:
        engine = self._engine
        try:
            for questions in search.questions():
                answers = await asyncio.to_thread(answer, engine.store, questions, search.match)
                search.note(questions, answers)
            if search.match.is_prefix:
                for _ in topic.tags.sort_in_steps():
                    await asyncio.sleep(0)
            if topic.tags.count(search.match) >= MANY_MATCHES:
                for _ in search.look_in_memory():
                    await asyncio.sleep(0)
            if engine.by_name.get(topic.name) is not topic:
                raise topic_not_found(topic.name)
            engine.delete_records(topic, before, search.match, done, fail, search=search)
        except ApiError as error:
            fail(error)
        except Exception:  # the task is not awaited: the request has to hear of it here
            log.exception("a deletion failed")
            fail(ApiError("internal", "the deletion failed"))
