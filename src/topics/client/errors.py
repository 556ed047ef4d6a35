"""The errors of the SDK.

TopicsError
├── Refused            the server said no: TopicNotFound, Unauthorized, Forbidden, RecordGone
├── Unreachable        no connection: nothing was sent
├── Uncertain          a write was sent, and its outcome is not known
├── Loss               records are gone: RecordsLost, TopicRestarted
├── ConfigDiffers      the topic exists with other settings
├── InvalidData        a record does not fit the topic's type
├── LeaseLost          the lease of a job has ended
└── NoJob              no job came in time
"""

import re
from typing import Any, Generic, TypeVar

from topics.client.records import Lost, Restarted

LossT = TypeVar("LossT", bound="Lost | Restarted")

# Advice for refusals whose code does not say what to do.
_HINTS = {
    "unauthorized": "give a valid key",
    "forbidden": "the key lacks the scope or the topic prefix this needs",
    "disk_full": "make room on the server's disk; the write may be repeated",
}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _copy(kind: "type[TopicsError]", arguments: tuple[Any, ...]) -> "TopicsError":
    return kind.__new__(kind, *arguments)


class TopicsError(Exception):
    """The base of all errors. `code` is the code of the server, or the name of the class in snake case."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: dict[str, Any] | None = None,
        hint: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or _snake(type(self).__name__)
        self.detail = detail or {}
        self.hint = hint
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all attributes, whatever arguments the class takes."""
        return _copy, (type(self), self.args), self.__dict__


class Unreachable(TopicsError):
    """No connection within `retry_s`: nothing was sent."""


class Uncertain(TopicsError):
    """The write was sent, and no answer came: it may be in the log or not.

    It is safe to repeat the write with this `idempotency_key` while the topic remembers keys.
    """

    def __init__(self, message: str, *, idempotency_key: str, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)
        self.idempotency_key = idempotency_key


class Refused(TopicsError):
    """The server answered with an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        hint = _HINTS.get(code)
        said = f"{message} ({status} {code}{'' if hint is None else ': ' + hint})"
        super().__init__(said, code=code, detail=detail, hint=hint, request_id=request_id)
        self.message = message
        self.status = status


class TopicNotFound(Refused):
    """No topic has this name."""


class Unauthorized(Refused):
    """The API key is missing or wrong."""


class Forbidden(Refused):
    """The API key lacks the scope, or the topic, for this request."""


class RecordGone(Refused):
    """The record is not there any more; `why` tells the reason."""

    @property
    def why(self) -> str:
        return str(self.detail.get("why", "unknown"))


_BY_CODE: dict[str, type[Refused]] = {
    "topic_not_found": TopicNotFound,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "record_gone": RecordGone,
}


def refusal(
    status: int,
    code: str,
    message: str,
    detail: dict[str, Any] | None = None,
    request_id: str | None = None,
) -> Refused:
    """The error for an error code of the server."""
    return _BY_CODE.get(code, Refused)(status, code, message, detail, request_id)


class Loss(TopicsError, Generic[LossT]):
    """A reader has reached a loss. No later record was handed out, and the cursor stays before the loss."""

    def __init__(self, loss: LossT, message: str) -> None:
        super().__init__(message)
        self.loss: LossT = loss

    @property
    def topic(self) -> str:
        return self.loss.topic

    @property
    def epoch(self) -> int:
        return self.loss.epoch


class RecordsLost(Loss[Lost]):
    """Records are lost that this reader has not read."""

    def __init__(self, loss: Lost) -> None:
        count = loss.missed_estimate
        super().__init__(
            loss,
            f"{loss.topic} lost seqs {loss.gap_from} to {loss.gap_to} ({loss.reason}):"
            f" about {count:,} {'record' if count == 1 else 'records'} that this reader has not seen",
        )

    @property
    def gap_from(self) -> int:
        return self.loss.gap_from

    @property
    def gap_to(self) -> int:
        return self.loss.gap_to

    @property
    def reason(self) -> str:
        return self.loss.reason

    @property
    def missed_estimate(self) -> int:
        return self.loss.missed_estimate


class TopicRestarted(Loss[Restarted]):
    """The topic was dropped and created again, or restored, since this reader read it."""

    def __init__(self, loss: Restarted) -> None:
        super().__init__(
            loss,
            f"{loss.topic} was made anew (epoch {loss.epoch}, this reader knew {loss.previous_epoch}):"
            " what it had not read of the former topic is gone",
        )

    @property
    def previous_epoch(self) -> int | None:
        return self.loss.previous_epoch


def loss_error(loss: Lost | Restarted) -> RecordsLost | TopicRestarted:
    return RecordsLost(loss) if isinstance(loss, Lost) else TopicRestarted(loss)


class ConfigDiffers(TopicsError):
    """The topic exists with other settings, which stay as they are."""

    def __init__(self, topic: str, differences: dict[str, tuple[Any, Any]]) -> None:
        said = ", ".join(
            f"{name} is {found!r}, not {wanted!r}" for name, (wanted, found) in differences.items()
        )
        super().__init__(f"topic {topic} exists with other settings: {said}")
        self.topic = topic
        self.differences = differences


class InvalidData(TopicsError, ValueError):
    """Data does not fit the type of its topic. `seq` is None for a record to write."""

    def __init__(self, topic: str, seq: int | None, reason: str) -> None:
        which = "a record to be written" if seq is None else f"record {seq}"
        super().__init__(f"{which} of {topic} does not fit the topic's type: {reason}")
        self.topic = topic
        self.seq = seq


class LeaseLost(TopicsError):
    """The lease of a job ended, so that another worker may have it."""

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(f"the lease on job {seq} of {topic} has ended: another worker may have it")
        self.topic = topic
        self.seq = seq


class NoJob(TopicsError):
    """No job came within `wait_s`."""
