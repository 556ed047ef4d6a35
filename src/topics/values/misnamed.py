"""What a request names and its route does not know, or names twice. Told last, and with every other `400`."""

from collections.abc import Collection, Iterable
from typing import Any

from topics.values.errors import ApiError, invalid
from topics.values.nearest import nearest

# So many names are told, and for so many a nearest one is looked for: a body may hold a million.
_MOST_NAMES = 100
_MOST_COMPARED = 20


class Misnamed:
    """False when there is nothing to tell."""

    __slots__ = ("did_you_mean", "duplicate", "unknown")

    def __init__(self) -> None:
        # In the order in which they were found, each once.
        self.unknown: list[str] = []
        self.did_you_mean: dict[str, str] = {}
        self.duplicate: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.unknown or self.duplicate)

    def note_unknown(self, names: Iterable[str], known: Collection[str]) -> None:
        for name in names:
            if len(self.unknown) < _MOST_NAMES and name not in self.unknown:
                self.unknown.append(name)
                near = nearest(name, known) if len(self.unknown) <= _MOST_COMPARED else None
                if near is not None:
                    self.did_you_mean[name] = near

    def note_duplicate(self, name: str) -> None:
        if len(self.duplicate) < _MOST_NAMES and name not in self.duplicate:
            self.duplicate.append(name)

    def join(self, others: "Misnamed") -> None:
        self.unknown += [name for name in others.unknown if name not in self.unknown]
        self.did_you_mean = others.did_you_mean | self.did_you_mean
        for name in others.duplicate:
            self.note_duplicate(name)

    def forget_unknown(self) -> None:
        """Pass over unknown names, for a server that is set to ignore them."""
        self.unknown, self.did_you_mean = [], {}

    def refuse(self) -> None:
        raise self.refusal()

    def refusal(self) -> ApiError:
        sentences = []
        if self.unknown:
            told = [self._told(name) for name in self.unknown]
            sentences.append(f"unknown: {', '.join(told)}")
        if self.duplicate:
            sentences.append(f"more than once: {', '.join(map(_quoted, self.duplicate))}")
        return invalid("; ".join(sentences), self._detail())

    def _told(self, name: str) -> str:
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
        """Every other mistake in the request is told together with these."""
        if self and error.status == 400:
            error.detail = {**(error.detail or {}), **self._detail()}


def _quoted(name: str) -> str:
    return f'"{name}"' if len(name) <= 64 else f'"{name[:64]}…"'
