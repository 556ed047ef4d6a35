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
        known = self._known(request)
        self.open.heard_of(request.owner, request.stage)
        paths = await asyncio.to_thread(self.open.paths, request.owner, request.stage, request.parts)
        parts = await self._read_parts(paths, request.topic)
        names, digests = await asyncio.to_thread(_named, paths, request.topic, parts)
        if known is not None:
            await self._require_same(request, known, paths, names, parts)
            if parts is None or await self._note_repeat(request, known.repeated(names, digests)):
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
        if parts.is_large:
            async with self._large:
                await self._import(request, commit, parts, amounts)
        else:
            await self._append(request, commit, parts, amounts)
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
        if not known.is_named(names):
            raise _conflict(request, "was committed with other parts, and not all of these are there")
        fs = self._engine.fs
        if not await asyncio.to_thread(lambda: known.held(names, read_digests(fs, paths))):
            raise _conflict(request, "was committed with other rows in the parts that are there")

    async def _note_repeat(self, request: CommitRequest, news: Commit | None) -> bool:
        """Whether its parts may go: should this answer be lost, the repeat is recognised without them."""
        if news is not None:
            try:
                await self._write(_Fact(self, request, news), [], self._engine.now())
            except ApiError:
                # The disk takes no more, say. The answer is the same, and the parts can be compared again.
                return False
        return True

    async def _spend(self, request: CommitRequest, paths: list[str]) -> None:
        names = await asyncio.to_thread(self._remove_files, paths)
        self.open.spent(request.owner, request.stage, names)

    def _known(self, request: CommitRequest) -> Commit | None:
        """Return the batch if this owner has committed it before."""
        known, oldest = self.identities.find(request.owner, request.id, request.batch)
        if known is None and oldest is not None and request.batch < oldest:
            raise _conflict(request, "is older than any batch of this identity that can still be compared")
        return known

    def prepare(self, request: CommitRequest, commit: Commit) -> OwnedCommit:
        """To be remembered when it is journalled."""
        owner = request.owner
        return self.identities.prepare(
            owner, request.id, commit, lambda name: (owner, name) in self._committing
        )

    async def _read_parts(self, paths: list[str], default_topic: str | None) -> "Parts | None":
        """None when one of them is missing."""
        from topics.flow.stages.parts import read_parts

        try:
            return await asyncio.to_thread(
                read_parts,
                self._engine.fs,
                paths,
                default_topic,
                MAX_STAGE_BYTES,
                self.large_bytes,
            )
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

    async def _append(
        self, request: CommitRequest, commit: Commit, parts: "Parts", amounts: "Amounts"
    ) -> None:
        """All rows in one frame of the journal."""
        engine = self._engine
        rows = await asyncio.to_thread(parts.by_topic)
        topics = self._topics(amounts)
        fact = _Fact(self, request, commit)
        await self._write(fact, [(topic, rows[name]) for name, topic in topics.items()], engine.now())

    async def _write(self, fact: "_Fact", parts: "list[Part]", now: int) -> None:
        frame = partial(fact.frame, now=now)
        append_group(self._engine, parts, now, frame, fact.settle, fact.refuse, sync=True)
        await fact.done

    async def _import(
        self, request: CommitRequest, commit: Commit, parts: "Parts", amounts: "Amounts"
    ) -> None:
        """All rows in segments, which are imported with one small frame."""
        topics = self._topics(amounts)
        fact = _Fact(self, request, commit)
        wanted = [Amount(topics[name], *amount) for name, amount in amounts.items()]
        pieces = ((topics[name], piece) for name, piece in parts.pieces())
        await import_records(self._engine, wanted, pieces, fact)

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
        self._prepared: list[OwnedCommit] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def frame(self, members: Sequence[AppendOp], now: int) -> FrameDraft:
        # A repeat has none, and the answer of the first.
        if members:
            self._commit.ranges = _ranges(members)
        prepared = self._stages.prepare(self._request, self._commit)
        self._prepared.append(prepared)
        return FrameDraft(Kind.STAGE, msgspec.msgpack.encode(prepared), ts=now)

    def settle(self) -> None:
        self._stages.identities.settle(self._prepared[0])
        if not self.done.done():
            self.done.set_result(None)

    def refuse(self, error: ApiError) -> None:
        for each in self._prepared:
            self._stages.identities.withdraw(each)
        if not self.done.done():
            self.done.set_exception(error)


def _conflict(request: CommitRequest, what: str) -> ApiError:
    return ApiError(
        "stage_conflict",
        f"batch {request.batch} {what}",
        {"id": request.id, "batch": request.batch},
    )


def _named(paths: list[str], topic: str | None, parts: "Parts | None") -> tuple[int, bytes]:
    """Digests of what a commit names, and of what is in each of its parts, if they are there."""
    return names_digest(paths, topic), b"" if parts is None else pack_digests(parts.digests)


def _ranges(members: Sequence[AppendOp]) -> list[StageRange]:
    ranges: dict[str, StageRange] = {}
    for member in members:
        name = member.topic.name
        known = ranges.setdefault(name, StageRange(name, member.first_seq, 0, 0, member.topic.id))
        known.last_seq = member.last_seq
        known.count += member.count
    return list(ranges.values())
