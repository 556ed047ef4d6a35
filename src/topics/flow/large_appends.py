"""Appends that are too large for one turn of the event loop, whatever protocol brings them.

    decode on a thread ─▶ admission ─▶ seqs are assigned ─▶ segments are written on a thread ─▶ import

Other appends to the same topics wait for the import; appends to other topics do not. Nothing refers to the
segments before the frame that imports them, so a failure until then leaves only unused files.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from topics.codec import Write
from topics.core import MIB, ApiError, OutcomeUnknown, short_of_memory
from topics.flow.admission import Admission
from topics.log import (
    Amount,
    Append,
    AppendOp,
    Engine,
    ImportFiles,
    ImportOp,
    ImportPart,
    Judgement,
    Topic,
    begin_import,
    finish_import,
    judge,
)
from topics.storage import FrameDraft, is_full

# Up to here an append is decoded, encoded and written on the event loop. `benchmarks` measures how long the
# loop is held by an append of this size, with either codec; the bound is 50 ms.
LARGE_BYTES = 2 * MIB
LARGE_RECORDS = 10_000


def is_large(count: int, size: int) -> bool:
    return size > LARGE_BYTES or count > LARGE_RECORDS


class Fact(Protocol):
    """A frame that is committed with the records, and the party that waits for the commit."""

    done: "asyncio.Future[None]"

    def frame(self, members: Sequence[AppendOp], now: int) -> FrameDraft | None: ...

    def settle(self) -> None: ...

    def refuse(self, error: ApiError) -> None: ...


async def import_records(
    engine: Engine, amounts: Sequence[Amount], pieces: Iterator[tuple[Topic, Write]], fact: Fact
) -> None:
    """Commit the records of `pieces`, which are as many as `amounts` says, with the frame of `fact`."""
    now = engine.now()
    operation = begin_import(engine, amounts, now, fact.settle, fact.refuse)
    await _write_and_finish(engine, operation, pieces, fact, now)


async def append_large(
    engine: Engine, admission: Admission, request: Append, writes: Sequence[Write], *, is_patient: bool
) -> None:
    """Append the records of one request; raises if it is refused before its topic is known.

    The first of `writes` has the options of the request. All of them together are its records.
    """
    count, size = sum(write.count for write in writes), sum(write.size for write in writes)
    await admission.enter_in_turn(request.name, size, lambda: None, is_patient=is_patient)
    engine.queue.assign_pending()
    judgement = judge(engine, request, writes[0])
    if judgement is None:
        return
    fact = _LargeRequest(judgement, with_seqs=writes[0].return_seqs)
    try:
        topic = judgement.topic
        operation = begin_import(
            engine, [Amount(topic, count, size)], judgement.now, fact.settle, fact.refuse
        )
        fact.begin(operation.parts[0])
        pieces = ((topic, write) for write in writes)
        await _write_and_finish(engine, operation, pieces, fact, judgement.now)
    except ApiError as error:
        fact.refuse(error)


class _LargeRequest:
    """A single request whose records are imported; no frame but theirs is committed."""

    def __init__(self, judgement: Judgement, *, with_seqs: bool) -> None:
        self._judgement = judgement
        self._with_seqs = with_seqs
        self._part: ImportPart | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, part: ImportPart) -> None:
        """The records have their seqs: repeated requests wait for the result from here on."""
        self._part = part
        judgement = self._judgement
        part.begin(judgement.created_by, judgement.digest)

    def frame(self, members: Sequence[AppendOp], now: int) -> None:
        return None

    def settle(self) -> None:
        part = self._part
        assert part is not None
        if not self.done.done():
            self.done.set_result(None)
            request = self._judgement.request
            request.committed(part.topic, part.first_seq, part.count, self._with_seqs, part)

    def refuse(self, error: ApiError) -> None:
        if not self.done.done():
            self.done.set_result(None)
            self._judgement.refuse(error)


async def _write_and_finish(
    engine: Engine, operation: ImportOp, pieces: Iterator[tuple[Topic, Write]], fact: Fact, now: int
) -> None:
    files = ImportFiles(engine, operation)
    try:
        await _write(engine, files, pieces)
        _finish(engine, operation, fact, now)
        await fact.done
    except asyncio.CancelledError:
        # The server stops, and a thread may still be writing.
        engine.queue.abandon(operation, ApiError("throttled", "the append was given up; try again"))
        files.leave()
        raise
    except OutcomeUnknown:
        raise  # a restart will show whether the journal has the import
    except Exception as error:
        # Operations of the same topics wait for this one, whatever has gone wrong.
        engine.queue.abandon(operation, _refusal(error))
        # Removed at once: on a full disk others need the room.
        await asyncio.to_thread(files.remove)
        await fact.done


async def _write(engine: Engine, files: ImportFiles, pieces: Iterator[tuple[Topic, Write]]) -> None:
    is_last = False
    while not is_last:
        is_last = not await asyncio.to_thread(files.fill, pieces)
        number = engine.take_segment_number()
        await asyncio.to_thread(files.write, number, is_last=is_last)
    await asyncio.to_thread(files.sync)


def _finish(engine: Engine, operation: ImportOp, fact: Fact, now: int) -> None:
    if fact.done.done():
        return  # it was refused meanwhile
    if not engine.rotate_to_import():
        engine.queue.require_growth(1)
        raise ApiError("internal", "the journal cannot go on in a new file")
    finish_import(engine, operation, lambda: fact.frame(operation.members, now))


def _refusal(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, MemoryError):
        return short_of_memory()
    if isinstance(error, OSError) and is_full(error):
        return ApiError("disk_full", "the disk has no room for this append")
    return ApiError("internal", f"the records could not be written: {error}")
