"""Large writes on their way to the log: what can be done ahead is done beside the loop.

A row holds its seq and its time, so it can be rendered only for those that it will probably get. Where others
write to the same topic meanwhile, these numbers are put right. Where they have not as many digits as before,
all is rendered again; if that never ends, the rows are rendered on the loop after all.
"""

import asyncio

from topics.flow.doors import Doors
from topics.log import LARGE_BYTES, AppendRequest, Batch, Engine

RENDER_ATTEMPTS = 3
# The accelerator renders this much in about a millisecond, which nobody notices; and no seq is guessed.
QUICK_BYTES = 3 * LARGE_BYTES


async def get_ready(
    engine: Engine, doors: Doors, name: str, request: AppendRequest, *, patient: bool
) -> None:
    """Let a large write wait for its turn, and render it; the caller writes it in this turn of the loop."""
    batch = request.batch
    await doors.append_in_turn(name, batch.size, lambda: None, patient=patient)
    if batch.size > (QUICK_BYTES if batch.is_quick else LARGE_BYTES):
        await _render(engine, name, batch)
    # It would keep the loop busy for longer than others like to wait.
    engine.queue.write_aside()


async def _render(engine: Engine, name: str, batch: Batch) -> None:
    for _ in range(RENDER_ATTEMPTS):
        now = engine.now()
        expected = _expected(engine, name, now)
        await asyncio.to_thread(batch.prepare, *expected, now)
        latest = _expected(engine, name, now)
        # A clock that was set back meanwhile has left this time behind.
        if now <= engine.now() and (latest == expected or batch.restamp(*latest)):
            return
    batch.forget_prepared()


def _expected(engine: Engine, name: str, now: int) -> tuple[int, int]:
    """Seq and time of the next record."""
    topic = engine.by_name.get(name)
    return (engine.settings.seq_base, now) if topic is None else (topic.assigned + 1, max(now, topic.last_ts))
