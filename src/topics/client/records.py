"""What a log hands out, and what is handed to it."""

from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One record as it was read. Its data is JSON, or of the type that the topic was opened with."""

    topic: str
    epoch: int
    seq: int
    ts: int
    data: T
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None

    @property
    def time(self) -> datetime:
        """When it was committed, by the server's clock."""
        return datetime.fromtimestamp(self.ts / 1000, UTC)


class Draft(msgspec.Struct, Generic[T], frozen=True):
    """A record to be written, with more than data."""

    data: T
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """The records are in the log, as safe as the topic's class makes them."""

    topic: str
    epoch: int
    first_seq: int
    last_seq: int
    count: int
    deduped: bool = False

    @property
    def seq(self) -> int:
        return self.last_seq


class Position(msgspec.Struct, frozen=True, gc=False):
    """Everything up to `seq` of this life of the topic is done."""

    topic: str
    epoch: int
    seq: int


class _NoContainer(msgspec.Struct, frozen=True):
    """Looks like neither a record nor a collection: `if item` or `len(items)` is a mistake that shows."""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is neither true nor false: match on its type")

    def __len__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} has no length: see gap_from and gap_to, or match on its type")


class Lost(_NoContainer, frozen=True):
    """Records that are gone without having been asked for: seqs `gap_from` to `gap_to`, both included."""

    topic: str
    epoch: int
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int


class Restarted(_NoContainer, frozen=True):
    """The topic was dropped and made anew, or restored: the reader's position is of a former life."""

    topic: str
    epoch: int
    previous_epoch: int | None
    # What this life's first seq is; a reader that goes on does so from in front of it.
    first_seq: int = 1


AnyLoss: TypeAlias = Lost | Restarted


class Accepted(msgspec.Struct, frozen=True):
    """A loss that its reader has taken note of, and why it went on."""

    loss: AnyLoss
    why: str


class Answer:
    """An answer of the server: the wire's keys as attributes (`$seq` is `seq`), nested objects as dicts."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = {name.lstrip("$"): value for name, value in values.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"this answer has no {name}; it has {', '.join(self._values)}") from None

    def as_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Answer({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"
