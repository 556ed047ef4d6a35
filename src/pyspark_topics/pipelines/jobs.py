"""Jobs cut into numbered steps, each committed under the job's id and its number, and noted when done.

A job that is killed goes on behind its last note. The step it was at is done again under the same number, and
the server knows whether it had arrived: so nothing is lost and nothing is written twice.
"""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.state import StatePath, write_note
from pyspark_topics.staging import Staged
from topics.client import Client


@dataclass
class Job:
    """What is noted about a job, in a file of its own."""

    path: StatePath
    id: str
    # What the job is about, to tell it from another under the same name.
    about: dict[str, Any]
    # The next step's number, and how far everything before it went.
    step: int = 0
    at: int = 0
    finished: bool = False
    # Where the next steps end, if that was settled already: a step that is done again has to be the same.
    plan: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, path: StatePath, about: dict[str, Any]) -> Self:
        """The job as it was left, or a new one."""
        known = cls.read(path)
        if known is not None and known.about == about:
            return known
        return cls(path, uuid.uuid4().hex, about)

    @classmethod
    def read(cls, path: StatePath) -> Self | None:
        try:
            noted = cls.read_json(path)
            return None if noted is None else cls(path, **noted)
        except (KeyError, TypeError):
            raise _unreadable(path) from None

    @staticmethod
    def read_json(path: StatePath) -> Any:
        """A note as it was written; None if there is none."""
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise _unreadable(path) from None

    @property
    def begun(self) -> bool:
        """Whether a step of it may be committed: what it is about must not change any more."""
        return self.step > 0 or bool(self.plan)

    def commit(self, client: Client, steps: list[Staged], at: int) -> None:
        """Each step under a number of its own, and noted when all have arrived."""
        for number, staged in enumerate(steps, self.step):
            if staged.parts:
                staged.commit(client, self.id, number)
        self.note(step=self.step + len(steps), at=at)

    def finish(self) -> None:
        self.note(step=self.step, at=self.at, finished=True)

    def settle(self, plan: list[int]) -> None:
        self.plan = plan
        self.note(step=self.step, at=self.at)

    def note(self, *, step: int, at: int, finished: bool = False) -> None:
        """Durable when it returns: a note that came back after a power cut would repeat old steps."""
        self.step, self.at, self.finished = step, at, finished
        self.plan = [end for end in self.plan if end > at]
        write_note(self.path, {key: value for key, value in asdict(self).items() if key != "path"})


def _unreadable(path: StatePath) -> PipelineFailed:
    return PipelineFailed(
        f"the notes of this job in {path} cannot be read; without them it would start again and "
        "write everything a second time: restore them, or delete them if that is what you want"
    )


@dataclass
class Pace:
    """At most so many records a second, on average since the start."""

    rate: float
    wait: Callable[[float], Any]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._due = self.clock()

    def pay(self, records: int) -> None:
        """Wait until the records before these have had their time; returns early when told to stop."""
        if self.rate <= 0:
            return
        now = self.clock()
        if self._due > now:
            self.wait(self._due - now)
        self._due = max(self._due, now) + records / self.rate
