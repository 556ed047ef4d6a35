"""Topics that a pipeline names and no server has: misspelled, or not there yet; and those that have moved."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field

from pyspark_topics.errors import PipelineFailed, did_you_mean
from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.state import StatePath, write_note
from topics.client import Client


@dataclass
class Missing:
    """What a pipeline waits for, if it does; one that stops at the heads of now has nothing to wait for."""

    client: Client
    progress: Progress
    once: bool
    _told: list[str] = field(default_factory=list)

    def tell(self, names: list[str]) -> None:
        """`names` are those that are missing now, and were never read."""
        if names == self._told:
            return
        if not names:
            self.progress.say("running")
        else:
            hint = did_you_mean(names[0], self.client.topic_names())
            if self.once:
                raise PipelineFailed(f'there is no topic "{names[0]}"{hint}')
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.progress.say("waiting", f'for topic "{names[0]}"{others}, which is not there yet{hint}')
        self._told = names


@dataclass
class Homes:
    """Which of several servers each topic was on, noted beside the pipeline's other state.

    A table knows seq and epoch of a topic, and each server counts epochs for itself: on another server both
    may fit by chance.
    """

    path: StatePath
    client: Client
    # Where topics were that were read before there was a note: when there was but one server.
    first: str

    def __post_init__(self) -> None:
        try:
            self._known: dict[str, str] = json.loads(self.path.read_text())
        except FileNotFoundError:
            self._known = {}

    def check(self, topics: Collection[str], read_before: Collection[str]) -> None:
        found = {topic: home for topic in topics if (home := self.client.home(topic))}
        for topic, home in found.items():
            before = self._known.get(topic, self.first if topic in read_before else home)
            if before != home:
                raise PipelineFailed(
                    f'topic "{topic}" was on {before} and is on {home} now, which makes it another topic: '
                    "give it another table, or a pipeline of its own for what comes from now on"
                )
        if not found.items() <= self._known.items():
            self._known |= found
            write_note(self.path, self._known)
