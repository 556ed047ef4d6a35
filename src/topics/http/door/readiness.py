"""Whether data requests are let in at all: not while recovering, not while draining."""

from collections.abc import Callable

from topics.values import ApiError


class Readiness:
    """Closed at first. The engine opens it after recovery, the server closes it for good when draining."""

    __slots__ = ("_draining", "_progress", "open")

    def __init__(self, progress: Callable[[], float] | None = None) -> None:
        self._progress = progress
        self._draining = False
        self.open = False

    def admit(self) -> None:
        self.open = not self._draining

    def drain(self) -> None:
        self._draining = True
        self.open = False

    @property
    def draining(self) -> bool:
        return self._draining

    def replay_progress(self) -> float:
        if self.open:
            return 1.0
        progress = self._progress() if self._progress is not None else 0.0
        return min(max(float(progress), 0.0), 1.0)

    def refusal(self) -> ApiError:
        if self._draining:
            return ApiError("shutting_down", "the server is shutting down")
        detail = {"replay_progress": self.replay_progress()}
        return ApiError("not_ready", "the server is still recovering its state", detail)
