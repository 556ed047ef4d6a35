"""Faults of a disk, armed one at a time: the next matching call fails, or goes wrong without a word."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.medium import Node


class Fault(StrEnum):
    KILL = "kill"
    POWER_LOSS = "power loss"
    READ_ERROR = "read error"
    WRITE_ERROR = "write error"
    NO_SPACE = "no space"
    SHORT_WRITE = "short write"
    SYNC_FAILURE = "failed sync"
    ROT = "bit rot"
    MISDIRECTION = "misdirected write"


# What makes a call fail while it runs; the others strike between calls, or are noticed later.
REFUSALS = (Fault.READ_ERROR, Fault.WRITE_ERROR, Fault.NO_SPACE, Fault.SHORT_WRITE, Fault.SYNC_FAILURE)


class FaultPlan:
    """One fault that strikes at the `after`-th call it could strike, and never again."""

    def __init__(self, fault: Fault, rng: random.Random, after: int = 1, within: str = "") -> None:
        self.fault = fault
        self.rng = rng
        self.fired_on: str | None = None
        self._after = after
        # Only paths with this in them.
        self._within = within

    @property
    def has_fired(self) -> bool:
        return self.fired_on is not None

    def _strikes(self, path: str) -> bool:
        if self.fired_on is not None or self._within not in path:
            return False
        self._after -= 1
        if self._after:
            return False
        self.fired_on = path
        return True

    def on_read(self, path: str) -> None:
        if self.fault is Fault.READ_ERROR and self._strikes(path):
            raise OSError(errno.EIO, "Input/output error", path)

    def on_write(self, path: str, size: int) -> int | None:
        """None when all goes well; otherwise how much is taken before the disk is full."""
        if self.fault is Fault.WRITE_ERROR and self._strikes(path):
            raise OSError(errno.EIO, "Input/output error", path)
        if self.fault is Fault.NO_SPACE and self._strikes(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        if self.fault is Fault.SHORT_WRITE and size and self._strikes(path):
            return self.rng.randrange(size)
        return None

    def fails_sync(self, path: str) -> bool:
        return self.fault is Fault.SYNC_FAILURE and self._strikes(path)

    def misdirect(self, node: Node, path: str, size: int, others: Sequence[Node]) -> tuple[Node, int] | None:
        """Where the write goes instead, if it is this one."""
        if self.fault is not Fault.MISDIRECTION or not size or not self._strikes(path):
            return None
        target = self.rng.choice([node, *others])
        return target, self.rng.randrange(max(target.size, 1))
