"""Where pipelines keep what they remember: in folders, or in an object store.

Notes of jobs go wherever tables go. The checkpoint of a route is Spark's own: it goes where the file systems
of Spark reach, which for an object store takes Hadoop's jars.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol, Self

from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.places import FORMAT, in_a_line, is_address, place, sync_folder

_ACCOUNT = "azure_storage_account_name"


@dataclass(frozen=True, order=True)
class StoredPath:
    """The little of a `Path` that notes need, in an object store. A note is one put: whole, or not there."""

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
        return place(self.parent.uri, dict(self.options))

    def read_text(self) -> str:
        found: bytes | None = self._folder.read(self.name)
        if found is None:
            raise FileNotFoundError(self.uri)
        return found.decode()

    def write_text(self, text: str) -> None:
        self._folder.write(self.name, text.encode())

    def glob(self, pattern: str) -> Iterator[Self]:
        for name in place(self.uri, dict(self.options)).files(""):
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
    """As a whole, or not at all."""
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
    mark = folder / "format.json"
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


class Files(Protocol):
    def names(self, folder: str) -> list[str]: ...

    def text(self, name: str) -> str | None: ...


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
    """What Spark has planned, as far as it tells."""

    def __init__(self, state: StatePath, spark: SparkSession) -> None:
        where = state / "checkpoint"
        self._files: Files
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

    def query_id(self) -> str:
        """The id that outlives a process."""
        found: str = json.loads(self._files.text("metadata") or "{}")["id"]
        return found
