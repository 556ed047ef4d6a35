"""Stages: writes prepared in parts, by many writers, and committed exactly once.

Parts are spooled and invisible. The commit carries an identity, an id and a batch number, which is journalled
in the same frame as the records, so that the two cannot part. A repeat is recognised for ever: it gets the
first answer if it brings the same rows, and an error if it brings others.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from topics.flow.doors import Doors
from topics.flow.stages.spool import PartMissing, digest_of, part_path
from topics.log import (
    AppendOp,
    Engine,
    Extension,
    Topic,
    admit_group,
    admit_total,
    append_group,
    create_topic,
    require_room,
)
from topics.storage import Frame, Kind
from topics.values import DEFAULT_CONFIG, ApiError, invalid

if TYPE_CHECKING:
    from topics.flow.stages.parts import About, Parts
    from topics.log.write.arrow_batch import ColumnBatch

# A stage of which nothing was heard for so long is given up.
IDLE_MS = 3_600_000
COLLECT_EVERY_S = 600.0
# One commit is one frame, and a few times its size is in memory while it is written.
MAX_STAGE_BYTES = 1024 * 1024 * 1024
# Batches of an identity whose rows a repeat is compared with. A stream repeats its last one or two; what is
# older than all of these is refused, never taken on trust.
REMEMBERED_BATCHES = 100
# Rendering runs beside the loop, for seqs that others may have taken meanwhile; then it is done again.
RENDER_ATTEMPTS = 3


class StageRange(msgspec.Struct, array_like=True, gc=False):
    topic: str
    first_seq: int
    last_seq: int
    count: int


class Committed(msgspec.Struct, array_like=True, gc=False):
    """A batch of an identity, and what became of it."""

    id: str
    batch: int
    count: int
    digest: int
    ranges: list[StageRange]


class CommitRequest(msgspec.Struct, gc=False):
    stage: str
    id: str
    batch: int
    parts: list[str]
    topic: str | None
    check_topic: Callable[[str], None]


if TYPE_CHECKING:
    Write = tuple[Topic, list[ColumnBatch]]
    Rows = dict[str | None, list[ColumnBatch]]

_committed = msgspec.msgpack.Decoder(Committed)
_state = msgspec.msgpack.Decoder(list[Committed])


class Stages(Extension):
    name = "stages"
    kinds: tuple[int, ...] = (Kind.STAGE,)

    def __init__(self, engine: Engine, doors: Doors) -> None:
        self._engine = engine
        self._doors = doors
        self._directory = engine.dirs.stages
        # The newest batches of each identity, ascending by number.
        self._identities: dict[str, dict[int, Committed]] = {}
        self._committing: dict[str, asyncio.Future[None]] = {}
        # When something was last heard of a stage, by the digest of its name.
        self._active: dict[str, int] = {}

    # --- parts ------------------------------------------------------------------------------------------

    async def put_part(
        self,
        stage: str,
        part: str,
        body: bytes,
        default_topic: str | None,
        check_topic: Callable[[str], None],
    ) -> "About":
        from topics.flow.stages.parts import write_part

        engine = self._engine
        self._touch(digest_of(stage))
        engine.fs.make_dirs(self._directory)
        return await asyncio.to_thread(
            write_part,
            engine.fs,
            part_path(self._directory, stage, part),
            body,
            max_bytes=engine.settings.max_body_bytes,
            default_topic=default_topic,
            check_topic=check_topic,
        )

    def _touch(self, key: str) -> None:
        self._active[key] = self._engine.now()

    def drop(self, stage: str) -> int:
        """Forget a stage; returns how many parts it had."""
        return self._remove(digest_of(stage))

    def _remove(self, key: str) -> int:
        fs = self._engine.fs
        names = [name for name in fs.list(self._directory) if name.startswith(key + "-")]
        for name in names:
            fs.remove(os.path.join(self._directory, name))
        self._active.pop(key, None)
        return len(names)

    # --- commit -----------------------------------------------------------------------------------------

    async def commit(self, request: CommitRequest) -> tuple[Committed, bool]:
        """What was committed under the identity, and whether that had happened before."""
        loop = asyncio.get_running_loop()
        while (earlier := self._committing.get(request.id)) is not None:
            await asyncio.shield(earlier)
        finished = self._committing[request.id] = loop.create_future()
        try:
            return await self._commit(request)
        finally:
            del self._committing[request.id]
            finished.set_result(None)

    async def _commit(self, request: CommitRequest) -> tuple[Committed, bool]:
        batches = self._identities.get(request.id, {})
        known = batches.get(request.batch)
        if known is None and batches and request.batch < max(batches):
            raise _conflict(request, "is older than any batch of this identity that can still be compared")
        parts = await self._read_parts(request)
        if known is not None:
            # The first answer names topics, and may have been given to another key.
            for written in known.ranges:
                request.check_topic(written.topic)
            # A repeat whose parts are gone can only be the same one: they went when it was committed.
            if parts is not None and (known.count, known.digest) != (parts.count, parts.digest):
                raise _conflict(request, "was committed with other rows")
            return known, True
        if parts is None:
            raise ApiError("not_found", "a part of this commit is not there", {"stage": request.stage})
        rows: Rows = await asyncio.to_thread(parts.by_topic)
        await self._wait_for_turn(rows)
        writes = self._writes(rows)
        now = await self._render(writes)
        committed = Committed(request.id, request.batch, parts.count, parts.digest, [])
        await self._append(committed, writes, now)
        self._spent(request)
        return committed, False

    async def _read_parts(self, request: CommitRequest) -> "Parts | None":
        """None when one of them is missing."""
        from topics.flow.stages.parts import Parts, read_part

        self._touch(digest_of(request.stage))
        fs, paths = self._engine.fs, [part_path(self._directory, request.stage, p) for p in request.parts]
        try:
            read = await asyncio.to_thread(lambda: [read_part(fs, path) for path in paths])
        except PartMissing:
            return None
        parts = Parts(read, request.topic)
        if parts.bytes > MAX_STAGE_BYTES:
            raise ApiError("payload_too_large", f"one commit takes at most {MAX_STAGE_BYTES} bytes")
        for name in parts.topics:
            request.check_topic(name)
        return parts

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
            if current == expected:
                return now
        # Others write faster than we render. Then it is done on the loop, where no write comes in between.
        return self._engine.now()

    async def _append(self, committed: Committed, writes: "list[Write]", now: int) -> None:
        engine = self._engine
        for topic, _ in writes:
            if engine.by_name.get(topic.name) is not topic:
                raise ApiError("throttled", f'topic "{topic.name}" was deleted meanwhile; commit again')
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fact(members: list[AppendOp]) -> list[bytes]:
            committed.ranges = _ranges(members)
            return engine.journal.frame(Kind.STAGE, msgspec.msgpack.encode(committed), ts=now)

        def settle() -> None:
            self._remember(committed)
            if not done.done():
                done.set_result(None)

        def refuse(error: ApiError) -> None:
            if not done.done():
                done.set_exception(error)

        append_group(engine, writes, now, fact, settle, refuse, sync=True)
        await done

    def _spent(self, request: CommitRequest) -> None:
        for part in request.parts:
            self._engine.fs.remove(part_path(self._directory, request.stage, part))

    # --- giving up --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Parts that are still there count as heard of now."""
        for name in self._engine.fs.list(self._directory):
            self._touch(name.partition("-")[0])
        self._schedule()

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_later(COLLECT_EVERY_S, self._collect_again)

    def _collect_again(self) -> None:
        self.collect()
        self._schedule()

    def collect(self) -> None:
        """Remove the parts of stages of which nothing was heard for long."""
        now = self._engine.now()
        for key in [key for key, heard in self._active.items() if now - heard >= IDLE_MS]:
            self._remove(key)

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        self._remember(_committed.decode(frame.payload))

    def _remember(self, committed: Committed) -> None:
        batches = self._identities.setdefault(committed.id, {})
        batches[committed.batch] = committed
        while len(batches) > REMEMBERED_BATCHES:
            del batches[min(batches)]

    def dump(self) -> Any:
        return [committed for batches in self._identities.values() for committed in batches.values()]

    def load(self, state: Any) -> None:
        for committed in _state.decode(msgspec.msgpack.encode(state)):
            self._remember(committed)


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
        known = ranges.setdefault(name, StageRange(name, member.first_seq, 0, 0))
        known.last_seq = member.last_seq
        known.count += member.count
    return list(ranges.values())
