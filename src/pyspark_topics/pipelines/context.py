"""What a pipeline is, what it is given to run with, and how it is checked before it runs.

    topics pipeline check: declaration → settings → topics that look misspelled → `mistakes` of each kind

A check writes nothing. Settings that several kinds share are checked here.
"""

import os
import re
import runpy
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_topics.errors import ForUsers, SparkDoesNotStart, did_you_mean, explain
from pyspark_topics.options import ServerOptions
from pyspark_topics.payload import VARIANT
from pyspark_topics.pipelines.delta_table import SCHEMES
from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.state import StatePath
from topics.client import TopicsError
from topics.core.names import is_topic_name

# Spark gives up on a Python process that does not report within ten seconds. Those of fifty queries that
# start together are not as quick on a small machine.
MOST_STARTING = 4


@dataclass(frozen=True)
class Outcome:
    """The result of a pipeline: `lines` for people, `facts` for machines. Exit code 1 unless `ok`."""

    ok: bool = True
    lines: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunSettings:
    """The settings and resources that all pipelines of a run share."""

    server: ServerOptions
    # A folder for checkpoints and notes.
    state: StatePath
    # Starts Spark on the first call, so a pipeline that fails before costs no JVM.
    session: Callable[[], SparkSession]
    _: KW_ONLY
    # Set when pipelines should come to an end: finish or give up the current step, leave things tidy.
    stop: threading.Event = field(default_factory=threading.Event)
    # Up to the heads of now, and no further.
    once: bool = False
    # Options of delta-rs, for tables and state that lie in an object store.
    storage: Mapping[str, str] = field(default_factory=dict)
    # A batch that is committed with other rows than it has now counts as written.
    accept: bool = False
    # Files of a load that are left out from now on, and those that are taken as new, by absolute path.
    skip: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    # Of this run, however often a pipeline is started in it.
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Held by each pipeline while its query starts.
    starting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_STARTING))
    # Called with the name of a pipeline where a crash would leave a step half done: when an archive has
    # written files and not committed them ("written"), and when the server has a commit that is not noted
    # yet ("committed"). A seam for tests.
    step: Callable[[str, str], None] = lambda name, reached: None


@dataclass
class Context(RunSettings):
    """One pipeline's surroundings while it runs. Everything in it may be used from the pipeline's thread.

    `state` is a folder of this pipeline's own, and exists.
    """

    name: str
    progress: Progress

    def committed(self) -> None:
        self.step(self.name, "committed")

    @property
    def spark(self) -> SparkSession:
        return self.session()


Mistakes = Iterator[tuple[str, str]]


def attempted(setting: str, attempt: Callable[[], object]) -> list[tuple[str, str]]:
    """The setting and the error of an attempt that fails; code of the user may be part of it."""
    try:
        attempt()
    except ForUsers as mistake:
        return [(setting, str(mistake))]
    except Exception as error:
        return [(setting, explain(error))]
    return []


def schema_mistakes(text: str | None) -> list[tuple[str, str]]:
    """Check the setting `schema`; Spark has to run."""
    if text is None or text.strip().lower() == VARIANT:
        return []
    return attempted("schema", lambda: StructType.fromDDL(text))


class Pipeline(Protocol):
    """A declared pipeline: its settings are its fields, and `run` does it."""

    # The word in a declaration.
    kind: ClassVar[str]
    # True for those that run until they are stopped; the others are jobs, which end by themselves.
    follows: ClassVar[bool]

    def run(self, context: Context) -> Outcome: ...


_ADDRESSES = "s3://bucket/path, az://container/path or gs://bucket/path"
NAME_RULE = "names are letters, digits and . _ : -, and begin with a letter or digit"


def check_topics(topics: list[str], pattern: str | None) -> None:
    if bool(topics) == (pattern is not None):
        raise ValueError('give either topics, like ["orders"], or pattern, a regular expression for names')
    check_pattern(pattern)
    for name in topics:
        check_name(name)


def check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"pattern is not a regular expression: {error}") from None


def check_not_read(target: str | None, topics: list[str], pattern: str | None) -> None:
    """A pipeline that reads what it writes never comes to an end."""
    if target is not None and (target in topics or (pattern and re.fullmatch(pattern, target))):
        raise ValueError(f'it would read what it writes: "{target}" is one of its topics')


def check_name(topic: str | None) -> None:
    if topic is not None and not is_topic_name(topic):
        raise ValueError(f'a topic cannot be called "{topic}": {NAME_RULE}')


def check_table(path: str | None, what: str = "a table") -> None:
    """Raise unless a table, or `state`, can be at this path."""
    if path is None:
        return
    scheme, is_url, rest = path.partition("://")
    if not path.strip() or (is_url and (scheme not in SCHEMES or not rest.strip("/"))):
        raise ValueError(f'{what} cannot be at "{path}": it has to be a folder, or at {_ADDRESSES}')


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """`file.py:function`, the file beside the declaration."""
    path, _, name = reference.rpartition(":")
    if not path or not name:
        raise ValueError('python has to be like "routes.py:enrich"')
    file = folder / path
    if not file.is_file():
        raise ValueError(f"python names {file}, and there is no such file")
    try:
        function = run_file(file).get(name)
    except Exception as error:  # code of the user
        raise ValueError(
            f"python names {file}, and running it failed with {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise ValueError(f'python is "{reference}", and {file} has no function {name}')
    found: Callable[..., Any] = function
    return found


def run_file(path: Path) -> dict[str, Any]:
    """Return what a user's file defines. Like a script, it may import modules from its own folder."""
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return runpy.run_path(str(path))


# --- `topics pipeline check` -----------------------------------------------------------------------------

# A server that does not answer is no mistake in a declaration.
PATIENCE_S = 1.0
# Settings that name a topic which a pipeline makes.
_TARGETS = ("into", "losses_into", "errors_into")


@dataclass
class Check:
    """All mistakes of some pipelines, as sentences that name the pipeline and the setting.

    `mistakes` of a kind gets this object, and yields settings and what is wrong with them.
    """

    # All that are checked together: one of them may make the table of another.
    pipelines: Mapping[str, Pipeline]
    server: ServerOptions
    session: Callable[[], SparkSession]
    # Options of delta-rs.
    storage: Mapping[str, str] = field(default_factory=dict)
    # Where the JVM writes its messages.
    log: Path = Path(os.devnull)
    # Of the file; a folder is made if it is missing, and Spark has to reach an object store.
    state: StatePath = Path(os.devnull)
    # The pipeline that is checked now.
    name: str = ""

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
            yield from check(replace(self, name=name))


def _reason(error: BaseException | None, log: Path) -> str:
    """The exception of the JVM: in its log, or after the line that says who called it."""
    lines = [*log.read_text(errors="replace").splitlines(), *str(error).splitlines()]
    raised = [line for line in lines if "Exception: " in line]
    return (raised or lines or [type(error).__name__])[0].strip(": ")
