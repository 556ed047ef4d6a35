"""Where tables and notes lie: in a folder that drivers and executors both see, or in an object store.

    place(uri, options)  →  Folder │ Bucket: write a file as a whole, read it, list and remove files

delta-rs commits; files are written and read here, in the same places and with the same options.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa
from deltalake import DeltaTable, Schema

from pyspark_topics.errors import PipelineFailed

# The format of tables and of state that this version writes, and the only one that it reads.
FORMAT = "1"
# The property of a table that says so.
MARK = {"topics.format": FORMAT}
SCHEMES = ("s3", "s3a", "az", "abfs", "abfss", "gs")


def is_address(uri: str) -> bool:
    return "://" in uri


def place(uri: str, options: Mapping[str, str] | None = None) -> "Place":
    if is_address(uri):
        # Loaded where it is needed: most tables lie in folders.
        from pyspark_topics.pipelines.tables.buckets import Bucket

        return Bucket(uri.rstrip("/"), tuple(sorted((options or {}).items())))
    return Folder(os.path.abspath(uri))


class Sink(Protocol):
    """A file being written: Arrow writes to `stream`, and then it is finished or abandoned."""

    stream: pa.NativeFile

    def finish(self) -> int:
        """Durable when it returns; says how large it is."""
        ...

    def abandon(self) -> None: ...


class Place(Protocol):
    @property
    def uri(self) -> str: ...

    @property
    def storage(self) -> dict[str, str] | None:
        """For delta-rs."""
        ...

    def beside(self, suffix: str) -> Self: ...

    def create(self, name: str) -> Sink: ...

    def source(self, name: str) -> Any:
        """What Arrow opens to read a file."""
        ...

    def files(self, ending: str) -> set[str]:
        """What lies there, but for the log of the table."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Those that are there; durably."""
        ...

    def is_free(self) -> bool:
        """Whether nothing lies there that is not ours."""
        ...

    def refuse_unsafe(self) -> None:
        """Raises if two writers of a table could overwrite each other's commits here."""
        ...

    def sync_commits(self, first: int, last: int) -> None:
        """Commits of the table that lies here survive a power cut."""
        ...

    def make_table(
        self, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> DeltaTable:
        """Or the one that another writer makes at the same time."""
        ...


def open_table(where: Place, version: int | None = None) -> DeltaTable:
    return DeltaTable(where.uri, version=version, storage_options=where.storage)


def is_marked(table: DeltaTable) -> bool:
    """Whether this version made the table, or has written to it."""
    return MARK.items() <= table.metadata().configuration.items()


def is_table(where: Place) -> bool:
    try:
        return bool(DeltaTable.is_deltatable(where.uri, where.storage))
    except Exception as error:
        raise PipelineFailed(f"cannot look for a table at {where.uri}: {in_a_line(error)}") from error


def create_table(
    uri: str, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
) -> DeltaTable:
    """Or the one that is there."""
    return DeltaTable.create(
        uri,
        schema,
        mode="ignore",
        partition_by=list(partition_by) or None,
        configuration=dict(properties),
        raise_if_key_not_exists=False,
    )


def in_a_line(error: BaseException) -> str:
    """Stores say what is wrong in many lines, in colour: the one that says most."""
    told = str(error).partition("Debug source:")[0]
    lines = [line.replace("\x1b[31m↳\x1b[0m", "").strip() for line in told.splitlines()]
    return " ".join(line for line in lines[:4] if line) or type(error).__name__


@dataclass(frozen=True)
class Folder:
    uri: str

    @property
    def storage(self) -> dict[str, str] | None:
        return None

    def beside(self, suffix: str) -> Self:
        return type(self)(self.uri + suffix)

    def create(self, name: str) -> Sink:
        os.makedirs(self.uri, exist_ok=True)
        return _LocalSink(self.source(name))

    def source(self, name: str) -> str:
        return os.path.join(self.uri, name)

    def files(self, ending: str) -> set[str]:
        return {path.name for path in Path(self.uri).glob(f"*{ending}")}

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            Path(self.uri, name).unlink(missing_ok=True)
        sync_folder(self.uri)

    def is_free(self) -> bool:
        return not (os.path.isdir(self.uri) and set(os.listdir(self.uri)) - {"_delta_log"})

    def refuse_unsafe(self) -> None:
        os.makedirs(os.path.dirname(self.uri), exist_ok=True)

    def sync_commits(self, first: int, last: int) -> None:
        """delta-rs leaves syncing to the operating system."""
        folder = Path(self.uri, "_delta_log")
        for version in range(first, last + 1):
            with (folder / f"{version:020}.json").open("rb") as commit:
                os.fsync(commit.fileno())
        sync_folder(str(folder))

    def make_table(
        self, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> DeltaTable:
        return create_table(self.uri, schema, partition_by, properties)


class _LocalSink:
    def __init__(self, path: str) -> None:
        self._path = path
        self.stream = pa.OSFile(path, "wb")

    def finish(self) -> int:
        self.stream.close()
        with open(self._path, "rb") as written:
            os.fsync(written.fileno())
        sync_folder(os.path.dirname(self._path))
        return os.path.getsize(self._path)

    def abandon(self) -> None:
        self.stream.close()
        os.unlink(self._path)


def sync_folder(folder: str) -> None:
    """A file is safe only when its name is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
