"""Several servers asked the same at once. One that does not answer is left behind, not waited for."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topics.client import Refused, TopicsError, Unreachable

# A server that takes longer is busy with something else, or its machine has vanished.
LATE_S = 2.0
# Answers that mean "later": too much at once, starting or stopping.
_TRANSIENT = (429, 503)

Question = Callable[[], Any]


@dataclass
class _Asked:
    """One question under way. Daemon threads: one that hangs must not keep a program alive."""

    question: Question
    answer: Any = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._run, name="topics-look", daemon=True).start()

    def _run(self) -> None:
        try:
            self.answer = self.question()
        except Exception as error:  # raised where the answer is wanted
            self.error = error
        self.done.set()


@dataclass
class Looking:
    """Questions to servers by their address, at most one to each at a time."""

    _under_way: dict[str, _Asked] = field(default_factory=dict)

    def is_asking(self, url: str) -> bool:
        return url in self._under_way and not self._under_way[url].done.is_set()

    def ask(
        self, questions: Mapping[str, Question], *, patient: bool
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Answers, and of the servers that gave none, why. With `patient`, those are an error."""
        asked = {}
        for url, question in questions.items():
            if patient or not self.is_asking(url):
                asked[url] = self._under_way[url] = _Asked(question)
                asked[url].start()
        deadline = None if patient else time.monotonic() + LATE_S
        answers, silent = {}, dict.fromkeys(questions.keys() - asked.keys(), "still no answer")
        for url, one in asked.items():
            if not one.done.wait(None if deadline is None else max(deadline - time.monotonic(), 0)):
                silent[url] = f"no answer within {LATE_S:.0f} s"
            elif one.error is None:
                answers[url] = one.answer
            elif patient or not _is_silence(one.error):
                raise _at(url, one.error)
            else:
                silent[url] = str(one.error)
        return answers, silent


def _is_silence(error: Exception) -> bool:
    return isinstance(error, Unreachable) or (isinstance(error, Refused) and error.status in _TRANSIENT)


def _at(url: str, error: Exception) -> Exception:
    """The same, and which server said so."""
    if isinstance(error, Refused):
        return Refused(error.status, error.code, f"{error.message} (at {url})", error.detail)
    return error if isinstance(error, TopicsError) else Unreachable(f"asking {url} failed: {error}")
