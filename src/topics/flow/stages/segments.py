"""A large commit: its rows go into segments beside the loop, and become visible with one small frame.

What others append to the same topics meanwhile waits behind it; nobody else notices. Nothing refers to the
segments before that frame: whatever goes wrong until then leaves nothing behind but files without a use.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from topics.log import AdoptedFiles, Adoption, Amount, AppendOp, Batch, Engine, Topic, adopt, begin_adoption
from topics.storage import is_full
from topics.values import ApiError, OutcomeUnknown


class Fact(Protocol):
    """What is journalled with the rows, and who waits for it."""

    done: "asyncio.Future[None]"

    def frame(self, members: list[AppendOp], now: int) -> list[bytes]: ...

    def settle(self) -> None: ...

    def refuse(self, error: ApiError) -> None: ...


async def write_segments(
    engine: Engine, amounts: Sequence[Amount], pieces: Iterator[tuple[Topic, Batch]], fact: Fact
) -> None:
    """Returns when all of it is committed. `pieces` are the rows, as much as `amounts` says, in order."""
    now = engine.now()
    adoption = begin_adoption(engine, amounts, now, fact.settle, fact.refuse)
    files = AdoptedFiles(engine, adoption)
    try:
        await _write(engine, files, pieces)
        _adopt(engine, adoption, files, fact, now)
        await fact.done
    except asyncio.CancelledError:
        # The server stops, and a thread may still be writing.
        engine.queue.abandon(adoption, ApiError("throttled", "the commit was given up; commit again"))
        files.leave()
        raise
    except OutcomeUnknown:
        raise  # a restart will show whether the journal has adopted them
    except Exception as error:
        # Whatever it was: what comes to these topics waits behind it.
        engine.queue.abandon(adoption, _refusal(error))
        # Removed at once: on a full disk others need the room.
        await asyncio.to_thread(files.remove)
        await fact.done


async def _write(engine: Engine, files: AdoptedFiles, pieces: Iterator[tuple[Topic, Batch]]) -> None:
    is_last = False
    while not is_last:
        is_last = not await asyncio.to_thread(files.fill, pieces)
        number = engine.next_segment
        engine.next_segment += 1
        await asyncio.to_thread(files.write, number, is_last=is_last)
    await asyncio.to_thread(files.sync)


def _adopt(engine: Engine, adoption: Adoption, files: AdoptedFiles, fact: Fact, now: int) -> None:
    if fact.done.done():
        return  # it was refused meanwhile
    if not engine.rotate_to_adopt():
        engine.queue.require_growth(1)
        raise ApiError("internal", "the journal cannot go on in a new file")
    adopt(engine, adoption, files.runs, lambda: fact.frame(adoption.members, now))


def _refusal(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, OSError) and is_full(error):
        return ApiError("disk_full", "the disk has no room for this commit")
    return ApiError("internal", f"the rows could not be written: {error}")
