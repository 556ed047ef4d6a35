"""Topics that a pipeline names and the server does not have: misspelled, or not there yet."""

from dataclasses import dataclass, field

from pyspark_topics.errors import PipelineFailed, did_you_mean
from pyspark_topics.pipelines.progress import Progress
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
