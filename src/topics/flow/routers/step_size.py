"""How much one step of forwarding does: a few milliseconds, which writers may have to wait behind it."""

from __future__ import annotations

from collections.abc import Iterator

from topics.flow.routers.definitions import Router

# One step moves at most so much: copies over all destinations, and bytes of source records.
STEP_COPIES = 5_000
STEP_ROWS_MIN = 16
STEP_BYTES = 8 * 1024 * 1024


def step_rows(routers: int) -> int:
    """Source records that so many routers take in one step."""
    return max(STEP_COPIES // routers, STEP_ROWS_MIN)


def in_slices(routers: list[Router], records: int) -> Iterator[list[Router]]:
    """Routers that move in one step each, when so many records wait for all of them.

    Every slice is a frame in the journal, and there are never more of them than records.
    """
    copies = min(records, step_rows(len(routers))) * len(routers)
    slices = max(min(records, copies // STEP_COPIES), 1)
    size = -(-len(routers) // slices)
    for at in range(0, len(routers), size):
        yield routers[at : at + size]
