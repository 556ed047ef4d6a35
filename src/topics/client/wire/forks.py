"""Reset, in a forked process, what belongs to its parent: sockets, locks, jobs and unsent records."""

import os
from typing import Protocol
from weakref import WeakSet


class Resettable(Protocol):
    def reset_in_child(self) -> None:
        """Called in the child after a fork. The parent finishes what it has begun."""


# One list for the process, because Python calls hooks of the process after a fork.
_to_reset: "WeakSet[Resettable]" = WeakSet()


def reset_after_fork(it: Resettable) -> None:
    _to_reset.add(it)


def _reset_all() -> None:
    for it in list(_to_reset):
        it.reset_in_child()


if hasattr(os, "register_at_fork"):  # not every platform forks
    os.register_at_fork(after_in_child=_reset_all)
