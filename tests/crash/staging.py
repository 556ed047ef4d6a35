"""Stages in a world without a running loop: parts are spooled and committed before the call returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.crash.disk import Crash
from tests.crash.drafts import Draft
from tests.crash.effects import Added, Did, Effect
from tests.crash.model import Event
from tests.crash.world import World
from tests.support.arrow import arrow_stream
from topics.core.errors import ApiError, OutcomeUnknown
from topics.flow.stages.identities import OwnedCommit
from topics.flow.stages.stages import LARGE_BYTES, CommitRequest

# An owner, an id and the number of a batch.
Identity = tuple[str, str, int]


class HereAndNow(ThreadPoolExecutor):
    """Runs everything in the caller's thread: a test that repeats itself knows no other."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Staging:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(HereAndNow())
        self._stopped: list[BaseException] = []
        self._is_committing = False

    def close(self) -> None:
        self._loop.close()

    def commit(
        self,
        world: World,
        identity: Identity,
        rows: dict[str, list[Draft]],
        *,
        stage: str = "stage",
        is_large: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> bool | None:
        """Stage rows for several topics and commit them. True when they had been committed before.

        One stage for all of them, unless told: what keeps its owners apart is the server's business.
        `is_large`: as if they were too large for one frame. `meanwhile` is then called while they are
        written into segments.
        """
        world.commit()
        if world.queue.refusals.failure is not None or any(world.engine.find(name) is None for name in rows):
            return None
        self._stopped = []
        world.queue.wake_with(lambda: self._wake(world))
        world.here.stages.large_bytes = 0 if is_large else LARGE_BYTES
        try:
            return self._run(self._commit(world, identity, rows, stage, meanwhile))
        finally:
            world.queue.wake_with(lambda: None)

    def _wake(self, world: World) -> None:
        self._loop.call_soon(self._turn, world)

    def _turn(self, world: World) -> None:
        self._guarded(world.queue.sync_now)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Crash as crash:
            self._stopped.append(crash)
            self._loop.stop()

    def _run(self, work: Coroutine[Any, Any, bool | None]) -> bool | None:
        try:
            return self._loop.run_until_complete(work)
        except RuntimeError:
            if not self._stopped:
                raise
            raise self._stopped[0] from None
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))

    def _interfere(self, world: World, commit: Event | None, meanwhile: Callable[[], object]) -> None:
        """As soon as a large commit has begun."""
        if not self._is_committing:
            return
        if all(op.is_ready for op in world.queue.waiting):
            self._loop.call_soon(self._interfere, world, commit, meanwhile)
            return
        self._guarded(meanwhile)
        if commit is not None:
            world.model.overtake(commit)

    async def _commit(
        self,
        world: World,
        identity: Identity,
        rows: dict[str, list[Draft]],
        stage: str,
        meanwhile: Callable[[], object],
    ) -> bool | None:
        stages = world.here.stages
        owner, name, batch = identity
        part = "only"
        try:
            await stages.put_part(owner, stage, part, _arrow(rows), None, lambda _: None)
        except (ApiError, OSError):
            if world.queue.refusals.refusal is None and world.disk.capacity is None:
                raise
            return None
        event = None
        if identity not in world.model.commits:
            event = world.model.event(*self._effects(world, identity, rows))
        request = CommitRequest(owner, stage, name, batch, [part], None)
        self._ack_when_settled(world, event)
        self._is_committing = True
        self._interfere(world, event, meanwhile)
        try:
            _, deduped = await stages.commit(request)
        except (ApiError, OSError) as error:
            if event is None and isinstance(error, ApiError) and error.code == "stage_conflict":
                return False
            if event is not None and not isinstance(error, OutcomeUnknown):
                world.model.refuse(event)
            return None
        finally:
            self._is_committing = False
        assert event is None or not deduped, f"{identity}: taken for a repeat, and it is none"
        return deduped

    @staticmethod
    def _ack_when_settled(world: World, event: Event | None) -> None:
        """At once, not when its client hears of it: what waits behind it takes effect right afterwards."""
        identities = world.here.stages.identities
        settle = type(identities).settle

        def settled(prepared: OwnedCommit) -> None:
            settle(identities, prepared)
            if event is not None:
                world.model.ack(event, is_safe=True, position=world.engine.journal.position)

        vars(identities)["settle"] = settled

    def _effects(self, world: World, identity: Identity, rows: dict[str, list[Draft]]) -> list[Effect]:
        commits, counts = world.model.commits, {name: len(drafts) for name, drafts in rows.items()}
        effects: list[Effect] = [
            Did(lambda: commits.__setitem__(identity, counts), lambda: commits.pop(identity))
        ]
        for name, drafts in rows.items():
            topic = world.topic(name)
            now = world.engine.now()
            records = world.records(topic, drafts, topic.assigned + 1, max(now, topic.last_ts))
            effects.append(Added(world.model.topics[topic.id], records, now))
        return effects


def _arrow(rows: dict[str, list[Draft]]) -> bytes:
    lines = [(name, data.decode(), tag, node) for name, drafts in rows.items() for data, tag, node in drafts]
    assert all(json.loads(line[1]) is not None for line in lines)
    columns = ("topic", "data", "tag", "node")
    return arrow_stream({key: [line[at] for line in lines] for at, key in enumerate(columns)})
