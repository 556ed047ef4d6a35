"""`topics pipeline check`: everything that can be told about pipelines before they run. Nothing is written.

declaration → settings → topics that look misspelled → what each kind checks by itself, with Spark
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_topics.errors import SparkDoesNotStart, did_you_mean
from pyspark_topics.options import Server
from pyspark_topics.pipelines.context import CheckContext, Mistakes, Pipeline
from pyspark_topics.pipelines.state import StatePath
from topics.client import TopicsError

# A server that does not answer is no mistake in a declaration.
PATIENCE_S = 1.0
# Settings that name a topic which a pipeline makes.
_TARGETS = ("into", "losses_into", "errors_into")


@dataclass
class Check:
    """All mistakes of some pipelines, as sentences that name the pipeline and the setting."""

    pipelines: Mapping[str, Pipeline]
    server: Server
    session: Callable[[], SparkSession]
    # Options of delta-rs.
    storage: Mapping[str, str] = field(default_factory=dict)
    # Where the JVM writes its messages.
    log: Path = Path(os.devnull)
    # Of the file; a folder is made if it is missing, and Spark has to reach an object store.
    state: StatePath = Path(os.devnull)

    def mistakes(self) -> Iterator[str]:
        known = self._topics()
        for name, pipeline in self.pipelines.items():
            try:
                for setting, sentence in self._of(name, pipeline, known):
                    yield f"pipeline {name}: {setting}: {sentence}"
            except SparkDoesNotStart as failure:
                # Nothing more can be told without it.
                yield f"spark: it does not start: {_reason(failure.__cause__, self.log)}"
                return

    def _topics(self) -> set[str] | None:
        """Topics of the server, and those that these pipelines make; None if the server does not answer."""
        try:
            with replace(self.server, patience_s=PATIENCE_S).client() as client:
                found = set(client.topic_names())
        except TopicsError:
            return None
        made = [getattr(one, target, None) for one in self.pipelines.values() for target in _TARGETS]
        return found | {name for name in made if name is not None}

    def _of(self, name: str, pipeline: Pipeline, known: set[str] | None) -> Mistakes:
        for topic in getattr(pipeline, "topics", []):
            # A topic that is missing may be made later, unless its name looks misspelled.
            hint = "" if known is None or topic in known else did_you_mean(topic, known)
            if hint:
                yield "topics", f'there is no topic "{topic}"{hint}'
        check = getattr(pipeline, "mistakes", None)  # a kind of the user's own need not have it
        if check is not None:
            yield from check(
                CheckContext(name, self.server, self.state, self.session, self.storage, self.pipelines)
            )


def _reason(error: BaseException | None, log: Path) -> str:
    """The exception of the JVM: in its log, or after the line that says who called it."""
    lines = [*log.read_text(errors="replace").splitlines(), *str(error).splitlines()]
    raised = [line for line in lines if "Exception: " in line]
    return (raised or lines or [type(error).__name__])[0].strip(": ")
