"""Delta tables: where they are, how they are opened or created, and how they are committed to.

    location(uri, options) → Folder │ ObjectStore: write a file as a whole, read it, list and remove files
    open_tables         → the table as it is, or a new one; both tables of an archive at the same time
    Commits             → files and application transactions in one commit

delta-rs commits. Files are written and read here, in the same places and with the same options. An existing
table is checked before anything is created, so a table that is refused leaves nothing behind.
"""

import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from pyspark_topics.errors import PipelineFailed, in_a_line

if TYPE_CHECKING:
    from pyspark_topics.pipelines.object_store import ObjectStore

# The format of tables and of state that this version writes, and the only one that it reads.
FORMAT = "1"
FIRST_COMMIT = f"_delta_log/{0:020}.json"
# The property of a table that says so.
MARK = {"topics.format": FORMAT}
SCHEMES = ("s3", "s3a", "az", "abfs", "abfss", "gs")
Location: TypeAlias = "Folder | ObjectStore"


def is_address(uri: str) -> bool:
    return "://" in uri


def location(uri: str, options: Mapping[str, str] | None = None) -> Location:
    if is_address(uri):
        # Loaded where it is needed: most tables lie in folders.
        from pyspark_topics.pipelines.object_store import ObjectStore

        return ObjectStore(uri.rstrip("/"), tuple(sorted((options or {}).items())))
    return Folder(os.path.abspath(uri))


def open_table(where: Location, version: int | None = None) -> DeltaTable:
    return DeltaTable(where.uri, version=version, storage_options=where.storage)


def is_marked(table: DeltaTable) -> bool:
    """Return whether this version created the table or has written to it."""
    return MARK.items() <= table.metadata().configuration.items()


def is_table(where: Location) -> bool:
    try:
        return bool(DeltaTable.is_deltatable(where.uri, where.storage))
    except Exception as error:
        raise PipelineFailed(f"cannot look for a table at {where.uri}: {in_a_line(error)}") from error


def first_commit(create: Callable[[str], object]) -> bytes:
    """Return the first commit of a table, without the place at which `create` made it."""
    with tempfile.TemporaryDirectory() as folder:
        create(folder)
        actions = [*map(json.loads, Path(folder, FIRST_COMMIT).read_text().splitlines())]
    for one in actions:
        one.get("commitInfo", {}).get("operationParameters", {}).pop("location", None)
    return "\n".join(map(json.dumps, actions)).encode()


def make_table(
    where: Location, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
) -> DeltaTable:
    """The table that this made, or the one that another writer made at the same time."""
    create = partial(
        DeltaTable.create,
        schema=schema,
        mode="ignore",
        partition_by=list(partition_by) or None,
        configuration=dict(properties),
        raise_if_key_not_exists=False,
    )
    where.make_table(create)
    return open_table(where)


@dataclass(frozen=True)
class Folder:
    """A folder with files; `ObjectStore` has the same methods."""

    uri: str

    @property
    def storage(self) -> dict[str, str] | None:
        """Options for delta-rs."""
        return None

    def beside(self, suffix: str) -> Self:
        return type(self)(self.uri + suffix)

    def create(self, name: str) -> pa.NativeFile:
        """Return a new file to write to, which `finish` or `abandon` ends."""
        os.makedirs(self.uri, exist_ok=True)
        return pa.OSFile(self.source(name), "wb")

    def finish(self, name: str, stream: pa.NativeFile) -> int:
        """Make the file durable and return its size."""
        stream.close()
        path = self.source(name)
        with open(path, "rb") as written:
            os.fsync(written.fileno())
        sync_folder(self.uri)
        return os.path.getsize(path)

    def abandon(self, name: str, stream: pa.NativeFile) -> None:
        stream.close()
        os.unlink(self.source(name))

    def source(self, name: str) -> str:
        """Return what Arrow opens to read a file."""
        return os.path.join(self.uri, name)

    def files(self, ending: str) -> set[str]:
        """Return the files there, without those of the table's log."""
        return {path.name for path in Path(self.uri).glob(f"*{ending}")}

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files that exist; durable when it returns."""
        for name in names:
            Path(self.uri, name).unlink(missing_ok=True)
        sync_folder(self.uri)

    def is_free(self) -> bool:
        """Return whether there is nothing but files of ours."""
        return not os.path.isdir(self.uri) or all(name.startswith("_") for name in os.listdir(self.uri))

    def refuse_unsafe(self) -> None:
        """Raise if two writers of a table could overwrite each other's commits here."""
        os.makedirs(os.path.dirname(self.uri), exist_ok=True)

    def sync_commits(self, first: int, last: int) -> None:
        """Sync commits of the table, which delta-rs leaves to the operating system."""
        folder = Path(self.uri, "_delta_log")
        for version in range(first, last + 1):
            with (folder / f"{version:020}.json").open("rb") as commit:
                os.fsync(commit.fileno())
        sync_folder(str(folder))

    def make_table(self, create: Callable[[str], object]) -> None:
        """Have `create` make a table here, unless one exists.

        Two writers must not both succeed: delta-rs would commit the metadata of the second as version 1.
        """
        commit = Path(self.uri, FIRST_COMMIT)
        commit.parent.mkdir(parents=True, exist_ok=True)
        draft = commit.with_name(f"_commit_{uuid.uuid4().hex}.json.tmp")
        with draft.open("wb") as file:
            file.write(first_commit(create))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, commit)
        draft.unlink()
        sync_folder(str(commit.parent))


def sync_folder(folder: str) -> None:
    """A file is safe only when its name is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class TableSpec:
    """A table at a place: what it is made with, and what refuses one that does not fit."""

    where: Location
    columns: Schema
    refuse_other: Callable[[DeltaTable], None]
    partition_by: tuple[str, ...] = ()

    def found(self) -> DeltaTable | None:
        try:
            table = open_table(self.where)
        except TableNotFoundError:
            return None
        except Exception as error:
            raise PipelineFailed(
                f"cannot look for a table at {self.where.uri}: {in_a_line(error)}"
            ) from error
        self.refuse_other(table)
        return table

    def refuse_taken(self) -> None:
        """A place with something else in it."""
        if not self.where.is_free() and self.found() is None:  # made by another writer meanwhile
            # Files that no commit names are removed after a while, and these are not ours.
            raise PipelineFailed(
                f"{self.where.uri} has files and is no Delta table: give a folder that is empty or new"
            )

    def made(self) -> DeltaTable:
        try:
            table = make_table(self.where, self.columns, self.partition_by, MARK)
        except Exception as error:
            found = self.found()  # which another writer may have made meanwhile
            if found is None:
                raise PipelineFailed(
                    f"cannot make a table at {self.where.uri}: {in_a_line(error)}"
                ) from error
            return found
        self.refuse_other(table)
        return table


def opened(
    first: TableSpec, second: TableSpec, probe: Callable[[], None]
) -> tuple[DeltaTable, bool, Future[DeltaTable]]:
    """Return the first table, whether it is new, and the second, which may still be on its way.

    None is made if one is refused, or if the probe of the place fails.
    """
    both = first, second
    threads = ThreadPoolExecutor(3)
    try:
        probed = threads.submit(probe)
        looked = threads.map(TableSpec.found, both)
        probed.result()
        found = list(looked)
        lacking = [one for one, table in zip(both, found, strict=True) if table is None]
        list(threads.map(TableSpec.refuse_taken, lacking))
        table, beside = found
        made = first.made() if table is None else table
        return made, table is None, threads.submit(second.made if beside is None else lambda: beside)
    finally:
        threads.shutdown(wait=False)


# To remove old commits, delta-rs lists the whole log, which grows for a month: as often as it writes a
# checkpoint is enough.
_TIDY_EVERY = 100


class Collision(PipelineFailed):
    """Another writer committed first, and what we were about to commit may not fit any more."""


class Commits:
    """Notes are numbers under names, application transactions to Delta, and each stands until it is moved.

    delta-rs reads every commit since the last checkpoint to tell one of them. In an object store that is a
    request each; so they are asked for once, as long as the table stays at its version or only we move it.
    """

    def __init__(self, where: Location, table: DeltaTable) -> None:
        self._where = where
        self._table = table
        self._version = table.version()
        self._found: dict[str, int | None] = {}

    def noted(self, name: str) -> int | None:
        """At the version at which the table was looked at last."""
        if self._table.version() != self._version:
            self._found.clear()
            self._version = self._table.version()
        if name not in self._found:
            # The first version is how the table was made.
            self._found[name] = self._table.transaction_version(name) if self._version else None
        return self._found[name]

    def publish(
        self, actions: Sequence[AddAction | RemoveAction], moved: Mapping[str, int], told: Mapping[str, str]
    ) -> bool:
        """Durable when it returns. Whether nobody else has committed since we looked last."""
        table = self._table
        if not is_marked(table):  # an empty table that somebody else made
            table.alter.set_table_properties(dict(MARK), raise_if_not_exists=False)
            table.update_incremental()
        before = table.version()
        properties = CommitProperties(
            custom_metadata=dict(told),
            app_transactions=[Transaction(name, version) for name, version in moved.items()],
        )
        try:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(
                    cleanup_expired_logs=None if (before + 1) % _TIDY_EVERY == 0 else False
                ),
            )
        except CommitFailedError as error:
            raise Collision(
                f"something else wrote to {table.table_uri} at the same time, so nothing of this was: {error}"
            ) from error
        table.update_incremental()
        self._where.sync_commits(before + 1, table.version())  # ours is the first of them, or behind others
        is_alone = table.version() == before + 1
        if is_alone and self._version == before:
            self._found |= moved
            self._version = table.version()
        return is_alone

    def vacuum(self, keep_hours: int) -> None:
        """In full: also files that no commit ever named, such as those of a driver that was killed."""
        # Or files that others have committed meanwhile would count as nobody's.
        self._table.update_incremental()
        self._table.vacuum(keep_hours, dry_run=False, full=True)
