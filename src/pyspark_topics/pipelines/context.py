"""What a pipeline is to the code that runs it, and what it is given to run with."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pyspark.sql import SparkSession

from pyspark_topics.options import Server
from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.state import StatePath

# Spark gives up on a Python process that does not report within ten seconds. Those of fifty queries that
# start together are not as quick on a small machine.
MOST_STARTING = 4


@dataclass(frozen=True)
class Outcome:
    """How a pipeline ended: `lines` for people, `facts` for machines. Not `ok` means exit code 1."""

    ok: bool = True
    lines: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Context:
    """One pipeline's surroundings while it runs. Everything in it may be used from the pipeline's thread."""

    name: str
    server: Server
    # A folder of this pipeline's own, for checkpoints and notes. It is there already.
    state: StatePath
    progress: Progress
    # Set when the pipeline should come to an end: finish or give up the current step, leave things tidy.
    stop: threading.Event
    # Up to the heads of now, and no further.
    once: bool
    # Spark is started by the first who asks, so a pipeline that fails before costs no JVM.
    session: Callable[[], SparkSession]
    # Options of delta-rs, for tables and state that lie in an object store.
    storage: Mapping[str, str] = field(default_factory=dict)
    # A batch that is committed with other rows than it has now counts as written.
    accept: bool = False
    # Files of a load that are left out from now on, and those that are taken as new, by absolute path.
    skip: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    # Of this run, however often the pipeline is started in it.
    run_id: str = ""
    # Shared by the pipelines of a run: held by each while its query starts.
    starting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_STARTING))

    @property
    def spark(self) -> SparkSession:
        return self.session()


class Pipeline(Protocol):
    """A declared pipeline: its settings are its fields, and `run` does it."""

    # The word in a declaration.
    kind: ClassVar[str]
    # True for those that run until they are stopped; the others are jobs, which end by themselves.
    follows: ClassVar[bool]

    def run(self, context: Context) -> Outcome: ...
