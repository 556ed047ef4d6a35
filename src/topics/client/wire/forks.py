"""What a forked process must not take for its own: its parent's sockets, locks, jobs and unsent records."""

import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    def forget_parent(self) -> None:
        """This is the copy in a forked process: what the parent has begun, the parent ends."""


# The one list of the process, because Python tells only the process as a whole that it was forked.
_inherited: "WeakSet[Inherited]" = WeakSet()


def tell_when_forked(it: Inherited) -> None:
    _inherited.add(it)


def _tell_all() -> None:
    for it in list(_inherited):
        it.forget_parent()


if hasattr(os, "register_at_fork"):  # not every platform forks
    os.register_at_fork(after_in_child=_tell_all)
