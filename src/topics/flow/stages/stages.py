"""Stages: writes prepared in parts, by many writers, and committed exactly once.

Parts are spooled and invisible. The commit carries an identity, an id and a batch number, which is journalled
in the same frame as the records, so that the two cannot part. A repeat is recognised: it gets the first
answer if it brings the same rows, and an error if it brings others. Stages and identities belong to the key
that opened them, or rather to all keys with the same prefixes: for others they are not there.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.flow.doors import Doors
from topics.flow.stages.identities import Commit, Identities, OwnedCommit, StageRange, UnownedIdentities
from topics.flow.stages.open_stages import OpenStages
from topics.flow.stages.spool import PartMissing, stage_key
from topics.log import (
    AppendOp,
    Engine,
    Topic,
    admit_group,
    admit_total,
    append_group,
    create_topic,
    require_room,
)
from topics.storage import Kind
from topics.values import DEFAULT_CONFIG, ApiError, invalid

if TYPE_CHECKING:
    from topics.flow.stages.parts import About, Parts
    from topics.log.write.arrow_batch import ColumnBatch

COLLECT_EVERY_S = 600.0
# One commit is one frame, and a few times its size is in memory while it is written.
MAX_STAGE_BYTES = 1024 * 1024 * 1024
# Its answer is kept, too, and may be asked for again.
MAX_TOPICS = 10_000
# Rendering runs beside the loop, for seqs that others may have taken meanwhile; then it is done again.
RENDER_ATTEMPTS = 3


class CommitRequest(msgspec.Struct, gc=False):
    owner: str
    stage: str
    id: str
    batch: int
    parts: list[str]
    topic: str | None
    # Which names the owner may use.
    may_name: Callable[[str], bool]


if TYPE_CHECKING:
    Write = tuple[Topic, list[ColumnBatch]]
    Rows = dict[str | None, list[ColumnBatch]]


class Stages:
    def __init__(self, engine: Engine, doors: Doors) -> None:
        self._engine = engine
        self._doors = doors
        self.identities = Identities()
        self._unowned = UnownedIdentities()
        self.open = OpenStages(engine.fs, engine.dirs.stages, engine.steady_ms)
        # Applications whose commit is under way; those of another owner do not wait for it.
        self._committing: dict[tuple[str, str], asyncio.Future[None]] = {}

    @property
    def extensions(self) -> tuple[Identities, UnownedIdentities]:
        """What the log keeps of it."""
        return self.identities, self._unowned

    # --- parts ------------------------------------------------------------------------------------------

    async def put_part(
        self,
        owner: str,
        stage: str,
        part: str,
        body: bytes,
        default_topic: str | None,
        check_topic: Callable[[str], None],
    ) -> "About":
        from topics.flow.stages.parts import write_part

        engine = self._engine
        engine.queue.require_growth(0)
        path = self.open.admit(owner, stage, part)
        engine.fs.make_dirs(engine.dirs.stages)
        try:
            about = await asyncio.to_thread(
                write_part,
                engine.fs,
                path,
                body,
                max_bytes=engine.settings.max_body_bytes,
                default_topic=default_topic,
                check_topic=check_topic,
            )
        except (ApiError, OSError):
            self.open.arrived(path)
            raise
        self.open.arrived(path)
        return about

    async def drop(self, owner: str, stage: str) -> int:
        """Forget a stage; returns how many parts it had."""
        return await self._remove([stage_key(owner, stage)])

    async def _remove(self, keys: list[str]) -> int:
        self.open.close(keys)
        paths = await asyncio.to_thread(self.open.files_of, keys)
        return len(await asyncio.to_thread(self._remove_files, paths))

    def _remove_files(self, paths: list[str]) -> set[str]:
        """On any thread; returns their names."""
        for path in paths:
            self._engine.fs.remove(path)
        return set(map(os.path.basename, paths))

    # --- commit -----------------------------------------------------------------------------------------

    async def commit(self, request: CommitRequest) -> tuple[Commit, bool]:
        """What was committed under the identity, and whether that had happened before."""
        application = (request.owner, request.id)
        while (earlier := self._committing.get(application)) is not None:
            await asyncio.shield(earlier)
        finished = self._committing[application] = asyncio.get_running_loop().create_future()
        try:
            return await self._commit(request)
        finally:
            del self._committing[application]
            finished.set_result(None)

    async def _commit(self, request: CommitRequest) -> tuple[Commit, bool]:
        known = self._known(request)
        self.open.heard_of(request.owner, request.stage)
        paths = await asyncio.to_thread(self.open.paths, request.owner, request.stage, request.parts)
        parts = await self._read_parts(paths, request.topic)
        if known is not None:
            # A repeat whose parts are gone can only be the same one: they went when it was committed.
            if parts is not None and (known.count, known.digest) != (parts.count, parts.digest):
                raise _conflict(request, "was committed with other rows")
            await self._spend(request, paths)
            return known, True
        if parts is None:
            raise ApiError("not_found", "a part of this commit is not there", {"stage": request.stage})
        if len(parts.topics) > MAX_TOPICS:
            raise invalid(f"one commit writes to at most {MAX_TOPICS} topics")
        rows: Rows = await asyncio.to_thread(parts.by_topic)
        await self._wait_for_turn(rows)
        writes = self._writes(rows)
        now = await self._render(writes)
        commit = Commit(request.batch, parts.count, parts.digest, [])
        await self._append(request, commit, writes, now)
        await self._spend(request, paths)
        return commit, False

    async def _spend(self, request: CommitRequest, paths: list[str]) -> None:
        names = await asyncio.to_thread(self._remove_files, paths)
        self.open.spent(request.owner, request.stage, names)

    def _known(self, request: CommitRequest) -> Commit | None:
        """The batch if it was committed before, by this owner or before there were owners."""
        known, oldest = self.identities.find(request.owner, request.id, request.batch)
        if known is None:
            known, oldest_unowned = self._unowned.find(request.id, request.batch, request.may_name)
            oldest = oldest_unowned if oldest is None else oldest
        if known is None and oldest is not None and request.batch < oldest:
            raise _conflict(request, "is older than any batch of this identity that can still be compared")
        return known

    async def _read_parts(self, paths: list[str], default_topic: str | None) -> "Parts | None":
        """None when one of them is missing."""
        from topics.flow.stages.parts import read_parts

        try:
            return await asyncio.to_thread(read_parts, self._engine.fs, paths, default_topic, MAX_STAGE_BYTES)
        except PartMissing:
            return None

    async def _wait_for_turn(self, rows: "Rows") -> None:
        """The commit is as important as the most important topic that it writes to."""
        names = [name for name in rows if name is not None]
        if names:
            name = max(names, key=self._doors.priority_of)
            size = sum(batch.size for batches in rows.values() for batch in batches)
            await self._doors.append_in_turn(name, size, lambda: None)

    def _writes(self, rows: "Rows") -> "list[Write]":
        """The topics themselves, created where they are missing."""
        if None in rows:
            raise invalid("there are rows without a topic, and the commit names none")
        engine = self._engine
        wanted = {name: batches for name, batches in rows.items() if name is not None}
        topics = engine.by_name
        known = [(topics[name], batches) for name, batches in wanted.items() if name in topics]
        admit_group(engine, known, engine.now())
        admit_total(engine, sum(b.size for batches in wanted.values() for b in batches), engine.now())
        # Created last, all or none: a commit that is refused leaves no topics behind.
        missing = [name for name in wanted if name not in topics]
        require_room(engine, len(missing))
        created = [
            (create_topic(engine, name, DEFAULT_CONFIG, lambda: None, lambda error: None), wanted[name])
            for name in missing
        ]
        return [*known, *created]

    async def _render(self, writes: "list[Write]") -> int:
        """Render everything beside the loop; returns the time for which it was done."""
        now = self._engine.now()
        for _ in range(RENDER_ATTEMPTS):
            now = self._engine.now()
            expected = [(topic.assigned, topic.ttl_hi, max(now, topic.last_ts)) for topic, _ in writes]
            await asyncio.to_thread(_prepare, writes, expected)
            current = [(topic.assigned, topic.ttl_hi, max(now, topic.last_ts)) for topic, _ in writes]
            # A clock that was set back meanwhile has left this time behind.
            if current == expected and now <= self._engine.now():
                return now
        # Others write faster than we render. Then it is done on the loop, where no write comes in between.
        return self._engine.now()

    async def _append(self, request: CommitRequest, commit: Commit, writes: "list[Write]", now: int) -> None:
        engine = self._engine
        for topic, _ in writes:
            if engine.by_name.get(topic.name) is not topic:
                raise ApiError("throttled", f'topic "{topic.name}" was deleted meanwhile; commit again')
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        prepared: list[OwnedCommit] = []

        def fact(members: list[AppendOp]) -> list[bytes]:
            commit.ranges = _ranges(members)
            prepared.append(
                self.identities.prepare(
                    request.owner, request.id, commit, lambda name: (request.owner, name) in self._committing
                )
            )
            return engine.journal.frame(Kind.OWNED_STAGE, msgspec.msgpack.encode(prepared[0]), ts=now)

        def settle() -> None:
            self.identities.settle(prepared[0])
            if not done.done():
                done.set_result(None)

        def refuse(error: ApiError) -> None:
            for each in prepared:
                self.identities.withdraw(each)
            if not done.done():
                done.set_exception(error)

        append_group(engine, writes, now, fact, settle, refuse, sync=True)
        await done

    # --- giving up --------------------------------------------------------------------------------------

    def start(self) -> None:
        self.open.find_again()
        self._schedule()

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_later(COLLECT_EVERY_S, self._collect_again)

    def _collect_again(self) -> None:
        self._collecting = asyncio.ensure_future(self.collect())
        self._schedule()

    async def collect(self) -> None:
        """Remove the parts of stages of which nothing was heard for long."""
        idle = self.open.idle()
        if idle:
            await self._remove(idle)


def _conflict(request: CommitRequest, what: str) -> ApiError:
    return ApiError(
        "stage_conflict",
        f"batch {request.batch} {what}",
        {"id": request.id, "batch": request.batch},
    )


def _prepare(writes: "list[Write]", expected: list[tuple[int, int, int]]) -> None:
    for (_, batches), (assigned, _, ts) in zip(writes, expected, strict=True):
        for batch in batches:
            batch.prepare(assigned + 1, ts)
            assigned += batch.count


def _ranges(members: list[AppendOp]) -> list[StageRange]:
    ranges: dict[str, StageRange] = {}
    for member in members:
        assert member.topic is not None
        name = member.topic.name
        known = ranges.setdefault(name, StageRange(name, member.first_seq, 0, 0, member.topic.id))
        known.last_seq = member.last_seq
        known.count += member.count
    return list(ranges.values())
