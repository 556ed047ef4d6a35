"""The one error type of the API: a stable code, a sentence, and optional detail."""

from enum import StrEnum
from typing import Any

import msgspec

STATUS_BY_CODE: dict[str, int] = {
    "invalid_request": 400,
    "batch_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "topic_not_found": 404,
    "router_not_found": 404,
    "record_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "router_cycle": 409,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "not_a_queue": 409,
    "stage_conflict": 409,
    "record_gone": 410,
    "topic_exists": 412,
    "router_exists": 412,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "throttled": 429,
    "internal": 500,
    "not_ready": 503,
    "shutting_down": 503,
    "disk_full": 507,
}


class WritesOff(StrEnum):
    """Why the log takes no writes. Reads go on in each case."""

    # Removals still work, and writes return by themselves.
    DISK_FULL = "disk_full"
    # These two last until the server is started again.
    DIRECTORY_REPLACED = "directory_replaced"
    STORAGE_FAILED = "storage_failed"


class Explained(Exception):
    """Ends a command: its text is a line for the person who typed it, and no traceback says more."""

    # What to do about it, where that is the same every time.
    advice = ""


class ConfigError(Explained):
    """A setting that makes starting impossible: one line for the operator, and never a secret."""


class UserMistake(Explained):
    """Something the person who typed a command can put right."""


class ApiError(Exception):
    """Raised where a rule is known to be broken; the HTTP edge turns it into the envelope."""

    def __init__(
        self,
        code: str,
        message: str,
        detail: dict[str, Any] | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        # Clients of a 429, 503 or 507 always get told when to come back.
        self.retry_after_s = 1 if retry_after_s is None and self.status in (429, 503, 507) else retry_after_s

    @property
    def status(self) -> int:
        return STATUS_BY_CODE[self.code]

    def anew(self) -> "ApiError":
        """The same once more: one that is raised again and again remembers every place where it was."""
        return ApiError(self.code, self.message, self.detail, retry_after_s=self.retry_after_s)

    def body(self) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail is not None:
            error["detail"] = self.detail
        return msgspec.json.encode({"error": error})


class OutcomeUnknown(ApiError):
    """Nobody can tell whether a restart will find what was asked for: no answer would be the truth."""

    def __init__(self, message: str) -> None:
        super().__init__("internal", message)


class InvariantViolated(Exception):
    """The state of the log contradicts itself. The text has the numbers; writes end until a restart."""


def invalid(message: str, detail: dict[str, Any] | None = None) -> ApiError:
    return ApiError("invalid_request", message, detail)


def topic_not_found(name: str) -> ApiError:
    return ApiError("topic_not_found", f'no topic named "{name}"', {"topic": name})


def short_of_memory() -> ApiError:
    return ApiError("throttled", "there is no memory for this now", {"retry_after_ms": 1000})


def limit_reached(limit: str, maximum: int) -> ApiError:
    return ApiError("throttled", f"{limit} reached", {"limit": limit, "max": maximum})
