"""The values that the SDK takes and returns: records, acknowledgements, positions and losses."""

from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One record that was read. Its data is JSON, or of the type that the topic was opened with."""

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
        """The time of the commit, by the server's clock."""
        return datetime.fromtimestamp(self.ts / 1000, UTC)


class Draft(msgspec.Struct, Generic[T], frozen=True):
    """A record to write, with more than data."""

    data: T
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """The acknowledgement of records that are in the log, as durable as their topic is."""

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
    """All records up to `seq`, in this incarnation of the topic, are done."""

    topic: str
    epoch: int
    seq: int


class _NoContainer(msgspec.Struct, frozen=True):
    """Refuses `bool()` and `len()`, which are mistakes on a loss."""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is neither true nor false: match on its type")

    def __len__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} has no length: see gap_from and gap_to, or match on its type")


class Lost(_NoContainer, frozen=True, tag_field="kind", tag="lost"):
    """Records that are lost: seqs `gap_from` to `gap_to`, both included."""

    topic: str
    epoch: int
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int


class Restarted(_NoContainer, frozen=True, tag_field="kind", tag="restarted"):
    """The topic was dropped and created again, or restored: the position is of an earlier incarnation."""

    topic: str
    epoch: int
    previous_epoch: int | None
    # The first seq of this incarnation. A reader continues before it.
    first_seq: int = 1


AnyLoss: TypeAlias = Lost | Restarted


class Accepted(msgspec.Struct, frozen=True):
    """A loss that a consumer has accepted, and why."""

    loss: AnyLoss
    why: str


# Keys of answers that cannot be attributes.
_ATTRIBUTES = {"from": "first_seq", "to": "last_seq"}


class Answer:
    """An answer of the server: its keys are attributes (`$seq` is `seq`), nested objects are dicts."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = {_ATTRIBUTES.get(name, name.lstrip("$")): value for name, value in values.items()}

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
