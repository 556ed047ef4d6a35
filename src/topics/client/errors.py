"""What can go wrong between a client and the server, in words for the person who has to act."""

from typing import Any

# What to do about an answer, where the code alone does not say it.
_HINTS = {
    "unauthorized": "give a valid key",
    "forbidden": "the key lacks the scope or the topic prefix this needs",
}


class TopicsError(Exception):
    """The server said no, or could not be asked."""


class Unreachable(TopicsError):
    """No answer within the client's patience."""


class Refused(TopicsError):
    """The server answered with an error; `code` is the word to branch on."""

    def __init__(self, status: int, code: str, message: str, detail: dict[str, Any] | None = None) -> None:
        hint = _HINTS.get(code)
        super().__init__(f"{message} ({status} {code}{'' if hint is None else ': ' + hint})")
        self.status = status
        self.code = code
        self.message = message
        self.detail = detail or {}
