"""Names in a request that its route does not know, and names that occur twice.

They are the last mistake that is reported, and every other `400` mentions them.
"""

from collections.abc import Collection, Iterable
from typing import Any

from topics.core.errors import ApiError, invalid
from topics.core.nearest import nearest

# A body may hold a million names: only the first ones are reported, and fewer get a suggestion.
_MAX_NAMES = 100
_MAX_COMPARED = 20


class UnknownFields:
    """Unknown and duplicate names of one request. False if there are none."""

    __slots__ = ("did_you_mean", "duplicate", "unknown")

    def __init__(self) -> None:
        # Each name once, in the order of the request.
        self.unknown: list[str] = []
        self.did_you_mean: dict[str, str] = {}
        self.duplicate: list[str] = []

    @classmethod
    def among(cls, names: Iterable[str], known: Collection[str]) -> "UnknownFields":
        """Return the names that are not known."""
        fields = cls()
        fields.add_unknown((name for name in names if name not in known), known)
        return fields

    def __bool__(self) -> bool:
        return bool(self.unknown or self.duplicate)

    def add_unknown(self, names: Iterable[str], known: Collection[str]) -> None:
        """Add unknown names. `known` are the names that may have been meant."""
        for name in names:
            if len(self.unknown) < _MAX_NAMES and name not in self.unknown:
                self.unknown.append(name)
                near = nearest(name, known) if len(self.unknown) <= _MAX_COMPARED else None
                if near is not None:
                    self.did_you_mean[name] = near

    def add_duplicate(self, name: str) -> None:
        if len(self.duplicate) < _MAX_NAMES and name not in self.duplicate:
            self.duplicate.append(name)

    def join(self, others: "UnknownFields") -> None:
        self.unknown += [name for name in others.unknown if name not in self.unknown]
        self.did_you_mean = others.did_you_mean | self.did_you_mean
        for name in others.duplicate:
            self.add_duplicate(name)

    def ignore_unknown(self) -> None:
        """Keep only the duplicate names."""
        self.unknown, self.did_you_mean = [], {}

    def refuse(self) -> None:
        raise self.refusal()

    def refusal(self) -> ApiError:
        sentences = []
        if self.unknown:
            sentences.append(f"unknown: {', '.join(map(self._described, self.unknown))}")
        if self.duplicate:
            sentences.append(f"more than once: {', '.join(map(_quoted, self.duplicate))}")
        return invalid("; ".join(sentences), self._detail())

    def _described(self, name: str) -> str:
        near = self.did_you_mean.get(name)
        return _quoted(name) if near is None else f"{_quoted(name)} (did you mean {_quoted(near)}?)"

    def _detail(self) -> dict[str, Any]:
        detail: dict[str, Any] = {}
        if self.unknown:
            detail |= {"unknown": self.unknown, "did_you_mean": self.did_you_mean}
        if self.duplicate:
            detail["duplicate"] = self.duplicate
        return detail

    def mention_in(self, error: ApiError) -> None:
        """Add the names to another mistake in the same request."""
        if self and error.status == 400:
            error.detail = {**(error.detail or {}), **self._detail()}


def _quoted(name: str) -> str:
    return f'"{name}"' if len(name) <= 64 else f'"{name[:64]}…"'
