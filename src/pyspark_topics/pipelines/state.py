"""What pipelines keep between runs, in folders or in an object store.

A job is cut into numbered steps. Each is committed under the id of the job and its number, and noted when it
is done. A job that was killed continues after its last note. It repeats the step that was not noted under the
same number, and the server knows whether that step has arrived.

Notes of jobs can be wherever tables can be. The checkpoint of a route is Spark's own: it has to be where
Spark's file systems reach, which needs Hadoop's jars for an object store.
"""

import json
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed, in_a_line
from pyspark_topics.pipelines.delta_table import FORMAT, is_address, location, sync_folder
from pyspark_topics.servers import TopicsClient
from pyspark_topics.writer import Staged

_ACCOUNT = "azure_storage_account_name"


@dataclass(frozen=True, order=True)
class StoredPath:
    """A path in an object store, with the methods of `Path` that notes need. A note is one put."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.uri}/{name}", self.options)

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def parent(self) -> Self:
        return type(self)(self.uri.rpartition("/")[0], self.options)

    @property
    def _folder(self) -> Any:
        return location(self.parent.uri, dict(self.options))

    def read_text(self) -> str:
        found: bytes | None = self._folder.read(self.name)
        if found is None:
            raise FileNotFoundError(self.uri)
        return found.decode()

    def write_text(self, text: str) -> None:
        self._folder.put(self.name, text.encode())

    def glob(self, pattern: str) -> Iterator[Self]:
        for name in location(self.uri, dict(self.options)).files(""):
            if fnmatch(name, pattern):
                yield self / name

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """There are no folders in an object store."""


StatePath = Path | StoredPath


def state_path(state: str, storage: Mapping[str, str]) -> StatePath:
    if is_address(state):
        return StoredPath(state.rstrip("/"), tuple(sorted(storage.items())))
    return Path(state).absolute()


def write_note(path: StatePath, noted: Any) -> None:
    """Write a note completely or not at all; durable when it returns."""
    text = json.dumps(noted)
    if isinstance(path, StoredPath):
        path.write_text(text)
        return
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(str(path.parent))


def claim_state(folder: StatePath) -> None:
    """Mark a new folder with the format of this version; refuse the state of another one."""
    mark = folder / "_format.json"
    try:
        found = json.loads(mark.read_text())
    except FileNotFoundError:
        found = None if any(folder.glob("*")) else FORMAT
        if found == FORMAT:
            write_note(mark, FORMAT)
    if found != FORMAT:
        raise PipelineFailed(
            f"{folder} holds the state of another version of topics: finish this pipeline with that version, "
            "then give another folder as state"
        )


# --- checkpoints of routes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Local:
    path: Path

    def names(self, folder: str) -> list[str]:
        return [one.name for one in (self.path / folder).glob("*")]

    def text(self, name: str) -> str | None:
        path = self.path / name
        return path.read_text() if path.exists() else None


class _OfSpark:
    """Through the file systems that Spark itself writes with."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._uri = uri
        self._jvm = spark.sparkContext._jvm
        try:
            self._files = self._path("").getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        except Exception as error:
            scheme = uri.partition("://")[0]
            raise PipelineFailed(
                f"Spark does not reach {uri}, where the checkpoint of this route is to be: give it Hadoop's "
                f'jars for {scheme}:// in [spark], as with "spark.jars.packages", or make state a folder '
                f"({_reason(error)})"
            ) from None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._uri}/{name}" if name else self._uri)

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return [one.getPath().getName() for one in self._files.listStatus(path)]

    def text(self, name: str) -> str | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


def _reason(error: Exception) -> str:
    found = getattr(error, "java_exception", None)
    return in_a_line(error) if found is None else str(found.getMessage() or found)


def _of_hadoop(where: StoredPath) -> str:
    """The address by the names that Hadoop has for object stores."""
    scheme, _, rest = where.uri.partition("://")
    if scheme == "s3":
        return f"s3a://{rest}"
    if scheme not in ("az", "abfs", "abfss"):
        return where.uri
    container, _, path = rest.partition("/")
    return f"abfss://{container if '@' in container else _with_account(container, where)}/{path}"


def _with_account(container: str, where: StoredPath) -> str:
    """delta-rs has the account among its options, in two spellings, and Hadoop in the address."""
    options = {key.lower(): value for key, value in where.options}
    account = options.get(_ACCOUNT) or options.get("account_name") or os.environ.get(_ACCOUNT.upper())
    if not account:
        raise PipelineFailed(
            f"Spark wants to know the storage account of {where.uri}, where the checkpoint of this route is "
            f"to be: give {_ACCOUNT} in [storage], or make state a folder"
        )
    return f"{container}@{account}.dfs.core.windows.net"


class Checkpoint:
    """The checkpoint of a route: the batches that Spark has planned."""

    def __init__(self, state: StatePath, spark: SparkSession) -> None:
        where = state / "checkpoint"
        self._files: _Local | _OfSpark
        if isinstance(where, Path):
            self.uri = str(where)
            self._files = _Local(where)
        else:
            self.uri = _of_hadoop(where)
            self._files = _OfSpark(spark, self.uri)

    def last(self) -> int:
        """The number of the last batch that was planned."""
        planned = (int(name) for name in self._files.names("offsets") if name.isdecimal())
        return max(planned, default=-1)

    def planned(self, batch: int) -> list[str]:
        """A line per source, behind a version and a line of its own."""
        found = self._files.text(f"offsets/{batch}")
        return [] if found is None else found.splitlines()[2:]

    @cached_property
    def query_id(self) -> str:
        """The id that outlives a process."""
        found: str = json.loads(self._files.text("metadata") or "{}")["id"]
        return found


@dataclass
class SteppedJob:
    """A job in numbered steps, with a note in a file of its own."""

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
        """Return the job that is noted, or a new one."""
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
        """Return whether a step may have been committed; then the subject of the job must not change."""
        return self.step > 0 or bool(self.plan)

    def commit(
        self, client: TopicsClient, steps: list[Staged], at: int, committed: Callable[[], None] = lambda: None
    ) -> None:
        """Commit each step under a number of its own, and note them when all have arrived."""
        for number, staged in enumerate(steps, self.step):
            if staged.parts:
                staged.commit(client, self.id, number)
        committed()
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
class Homes:
    """Which of several servers each topic was on, noted beside the pipeline's other state.

    A table knows seq and epoch of a topic, and each server counts epochs for itself: on another server both
    may fit by chance.
    """

    path: StatePath
    client: TopicsClient
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
