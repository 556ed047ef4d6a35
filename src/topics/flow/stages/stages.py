"""Stages: writes prepared in parts, by many writers, and committed exactly once.

Parts are spooled and invisible. The commit carries an identity, an id and a batch number, which is journalled
in the same frame as the records, or as the names of the segments that have them, so that the two cannot part.
A repeat is recognised: it gets the first answer if it brings the same rows, and an error if it brings others.
Its rows may be in other parts than before, as long as all of them are there. Where some are gone, they must
have gone with that commit: a repeat has to name the same ones, and what is left of them is compared.
Stages and identities belong to the key that opened them, or rather to all keys with the same prefixes: for
others they are not there.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from topics.core import DEFAULT_CONFIG, ApiError, invalid
from topics.flow.admission import Admission
from topics.flow.large_appends import LARGE_BYTES, import_records
from topics.flow.stages.identities import (
    Commit,
    Identities,
    OwnedCommit,
    StageRange,
    pack_digests,
)
from topics.flow.stages.spool import OpenStages, PartMissing, names_digest, stage_key
from topics.log import (
    Amount,
    AppendOp,
    Engine,
    Topic,
    admit_group,
    admit_total,
    append_group,
    create_topic,
    require_room,
)
from topics.storage import FrameDraft, Kind

if TYPE_CHECKING:
    from topics.flow.stages.parts import About, Parts
    from topics.log import Part

COLLECT_EVERY_S = 600.0
MAX_STAGE_BYTES = 1024 * 1024 * 1024
# Its answer is kept, too, and may be asked for again.
MAX_TOPICS = 10_000


class CommitRequest(msgspec.Struct, gc=False):
    owner: str
    stage: str
    id: str
    batch: int
    parts: list[str]
    topic: str | None


if TYPE_CHECKING:
    # What each topic gets: records, and bytes.
    Amounts = dict[str, tuple[int, int]]


class Stages:
    def __init__(self, engine: Engine, admission: Admission) -> None:
        self._engine = engine
        self._admission = admission
        self.identities = Identities()
        self.open = OpenStages(engine.fs, engine.dirs.stages, engine.steady_ms)
        self.large_bytes = LARGE_BYTES
        # One large commit at a time: each takes some memory, and the disk.
        self._large = asyncio.Lock()
        # Applications whose commit is under way; those of another owner do not wait for it.
        self._committing: dict[tuple[str, str], asyncio.Future[None]] = {}

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
        known, oldest = self.identities.find(request.owner, request.id, request.batch)
        if known is None and oldest is not None and request.batch < oldest:
            raise _conflict(request, "is older than any batch of this identity that can still be compared")
        self.open.heard_of(request.owner, request.stage)
        paths = await asyncio.to_thread(self.open.paths, request.owner, request.stage, request.parts)
        parts = await self._read_parts(paths, request.topic)
        names = await asyncio.to_thread(names_digest, paths, request.topic)
        # On a thread: a commit may name a hundred thousand parts.
        digests = b"" if parts is None else await asyncio.to_thread(lambda: pack_digests(parts.digests))
        if known is not None:
            await self._require_same(request, known, paths, names, parts)
            news = None if parts is None else known.repeated(names, digests)
            try:
                if news is not None:
                    await self._append(_Fact(self, request, news), [])
            except ApiError:
                # The disk is full, for example. The parts stay, so that they can be compared again.
                return known, True
            await self._spend(request, paths)
            return known, True
        if parts is None:
            raise ApiError("not_found", "a part of this commit is not there", {"stage": request.stage})
        if None in parts.amounts:
            raise invalid("there are rows without a topic, and the commit names none")
        if len(parts.amounts) > MAX_TOPICS:
            raise invalid(f"one commit writes to at most {MAX_TOPICS} topics")
        amounts = {name: amount for name, amount in parts.amounts.items() if name is not None}
        await self._wait_for_turn(amounts)
        commit = Commit(request.batch, parts.count, parts.digest, [], [names], digests)
        fact = _Fact(self, request, commit)
        if parts.is_large:
            async with self._large:
                topics = self._topics(amounts)
                wanted = [Amount(topics[name], *amount) for name, amount in amounts.items()]
                pieces = ((topics[name], piece) for name, piece in parts.pieces())
                await import_records(self._engine, wanted, pieces, fact)
        else:
            rows = await asyncio.to_thread(parts.by_topic)
            await self._append(fact, [(topic, rows[name]) for name, topic in self._topics(amounts).items()])
        await self._spend(request, paths)
        return commit, False

    async def _require_same(
        self, request: CommitRequest, known: Commit, paths: list[str], names: int, parts: "Parts | None"
    ) -> None:
        """Refuses a repeat that is not one of what was committed. `parts` is None when not all are there."""
        from topics.flow.stages.parts import read_digests

        if parts is not None:
            if (known.count, known.digest) != (parts.count, parts.digest):
                raise _conflict(request, "was committed with other rows")
            return
        if names not in known.names:
            raise _conflict(request, "was committed with other parts, and not all of these are there")
        fs = self._engine.fs
        if not await asyncio.to_thread(lambda: known.held(names, read_digests(fs, paths))):
            raise _conflict(request, "was committed with other rows in the parts that are there")

    async def _spend(self, request: CommitRequest, paths: list[str]) -> None:
        names = await asyncio.to_thread(self._remove_files, paths)
        self.open.spent(request.owner, request.stage, names)

    def is_committing(self, owner: str, name: str) -> bool:
        return (owner, name) in self._committing

    async def _read_parts(self, paths: list[str], default_topic: str | None) -> "Parts | None":
        """None when one of them is missing."""
        from topics.flow.stages.parts import read_parts

        try:
            bounds = MAX_STAGE_BYTES, self.large_bytes
            return await asyncio.to_thread(read_parts, self._engine.fs, paths, default_topic, *bounds)
        except PartMissing:
            return None

    async def _wait_for_turn(self, amounts: "Amounts") -> None:
        """The commit is as important as the most important topic that it writes to."""
        if amounts:
            name = max(amounts, key=self._admission.priority_of)
            await self._admission.enter_in_turn(name, sum(size for _, size in amounts.values()), lambda: None)

    def _topics(self, amounts: "Amounts") -> dict[str, Topic]:
        """The topics themselves, created where they are missing."""
        engine, topics = self._engine, self._engine.by_name
        known = [Amount(topics[name], *amount) for name, amount in amounts.items() if name in topics]
        admit_group(engine, known, engine.now())
        admit_total(engine, sum(size for _, size in amounts.values()), engine.now())
        # Created last, all or none: a commit that is refused leaves no topics behind.
        missing = [name for name in amounts if name not in topics]
        require_room(engine, len(missing))
        for name in missing:
            create_topic(engine, name, DEFAULT_CONFIG, lambda: None, lambda error: None)
        return {name: topics[name] for name in amounts}

    async def _append(self, fact: "_Fact", parts: "list[Part]") -> None:
        """Commit all rows with one frame of the journal."""
        now = self._engine.now()
        frame = partial(fact.frame, now=now)
        append_group(self._engine, parts, now, frame, fact.settle, fact.refuse, sync=True)
        await fact.done

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


class _Fact:
    """That a batch was committed: journalled with its records, and remembered once they are."""

    def __init__(self, stages: Stages, request: CommitRequest, commit: Commit) -> None:
        self._stages = stages
        self._request = request
        self._commit = commit
        self._prepared: OwnedCommit | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def frame(self, members: Sequence[AppendOp], now: int) -> FrameDraft:
        # A repeat has none, and the answer of the first.
        if members:
            self._commit.ranges = _ranges(members)
        owner, name = self._request.owner, self._request.id
        is_busy = partial(self._stages.is_committing, owner)
        self._prepared = self._stages.identities.prepare(owner, name, self._commit, is_busy)
        return FrameDraft(Kind.STAGE, msgspec.msgpack.encode(self._prepared), ts=now)

    def settle(self) -> None:
        if self._prepared is not None:
            self._stages.identities.settle(self._prepared)
        if not self.done.done():
            self.done.set_result(None)

    def refuse(self, error: ApiError) -> None:
        if self._prepared is not None:
            self._stages.identities.withdraw(self._prepared)
        if not self.done.done():
            self.done.set_exception(error)


def _conflict(request: CommitRequest, what: str) -> ApiError:
    return ApiError(
        "stage_conflict",
        f"batch {request.batch} {what}",
        {"id": request.id, "batch": request.batch},
    )


def _ranges(members: Sequence[AppendOp]) -> list[StageRange]:
    ranges: dict[str, StageRange] = {}
    for member in members:
        name = member.topic.name
        known = ranges.setdefault(name, StageRange(name, member.first_seq, 0, 0, member.topic.id))
        known.last_seq = member.last_seq
        known.count += member.count
    return list(ranges.values())
