"""What of a topic is read, and what becomes of losses: the arguments of `read`, `tail` and `items`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from topics.client.records import AnyLoss

OnLoss: TypeAlias = Callable[[AnyLoss], Any]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    from_seq: int | None = None
    last: int | None = None
    since: int | None = None
    until: int | None = None
    tag: str | None = None
    node: str | list[str] | None = None
    limit: int | None = None
    follow: bool = False
    idle_s: float | None = None
    on_loss: OnLoss | None = None
    ignore_loss: str | None = None
    # Whether a reader that was not told where to begin does so at the head.
    from_head: bool = False
    # Whether the server is asked to wait for more; one that watches several topics is told otherwise.
    waits: bool = True

    def __post_init__(self) -> None:
        check_ways_past(self.on_loss, self.ignore_loss)
        for name in ("from_seq", "last", "limit"):
            value: Any = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a number, not {value!r}")
            if value < 0:
                raise ValueError(f"{name} is 0 or more, not {value}")
        beginnings = [name for name in ("from_seq", "last") if getattr(self, name) is not None]
        if len(beginnings) > 1:
            raise TypeError("give from_seq or last, not both")
        if self.idle_s is not None and self.idle_s < 0:
            raise ValueError("idle_s is 0 or more")

    @property
    def nodes(self) -> list[str]:
        return [self.node] if isinstance(self.node, str) else list(self.node or ())


def check_ways_past(on_loss: Any, ignore_loss: Any) -> None:
    """How a reader goes past losses: at most one way, and a reason where there is no handler."""
    if ignore_loss is not None:
        if not isinstance(ignore_loss, str):
            raise TypeError("ignore_loss says why losses do not matter, as a text")
        if not ignore_loss.strip():
            raise ValueError("ignore_loss says why losses do not matter")
        if on_loss is not None:
            raise TypeError("give on_loss or ignore_loss, not both")
    if on_loss is not None and not callable(on_loss):
        raise TypeError("on_loss is a function that gets a Lost or a Restarted")


def milliseconds(when: "int | datetime | None") -> int | None:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError("give times with their zone, such as datetime.now(UTC)")
        return round(when.timestamp() * 1000)
    return when
