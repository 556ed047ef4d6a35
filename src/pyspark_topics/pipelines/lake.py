"""The lake: a Delta table of records and one of gaps beside it, both committed through delta-rs.

    <table>         topic, epoch, seq, ts, node, tag, data, meta
    <table>_gaps    topic, epoch, gap_from, gap_to, reason, ts

How far each topic is archived stands in the log of the records table itself, as an application transaction
in the same commit as the files: `topics/<topic>` has the epoch as its version, and
`topics/<topic>/<epoch>` the last seq. So files and position cannot part, no checkpoint is needed beside the
table, and two writers of the same topic collide in the commit instead of writing it twice.

Gaps ride along in that commit as metadata. The gap table repeats them as rows, and notes up to which version
of the records table it has done so, so a crash between the two commits is made up for by the next one.
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Self

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import Offsets, StreamOffset
from pyspark_topics.pipelines.delta_table import (
    Collision,
    Commits,
    Location,
    TableSpec,
    is_table,
    location,
    open_table,
    opened,
)
from pyspark_topics.pipelines.parquet import DataFile, write_files
from pyspark_topics.pipelines.table_schema import (
    GAPS,
    RECORDS,
    ArchiveColumns,
    add_columns,
    as_delta,
    columns_of,
    refuse_other_table,
    refuse_unlike,
)

log = logging.getLogger(__name__)
_ALL_GAPS = "select topic, epoch, gap_from, gap_to, reason from gaps order by topic, epoch, gap_from"
_GAPS_KEY = "topicsGaps"
_GAPS_UP_TO = "topics/gaps"
_REWRITES = "topics/rewrites"
# Writers of one table meet here only for a moment.
_NOTING_ATTEMPTS = 20
# Commits without gaps are noted from time to time, so that few have to be looked through again.
_NOTE_EVERY = 50


@dataclass(frozen=True)
class Gap:
    topic: str
    epoch: int
    gap_from: int
    gap_to: int | None
    reason: str


class Lake:
    """For one writer at a time, or many readers. It lies where drivers and executors both reach it."""

    def __init__(
        self,
        path: str,
        storage: Mapping[str, str] | None = None,
        columns: ArchiveColumns | None = None,
    ) -> None:
        """`columns` are those that a writer wants; without them, an existing table is taken as it is."""
        self.location = location(path, storage)
        self.path = self.location.uri
        self._gaps_location = self.location.beside("_gaps")
        gaps = Schema.from_arrow(GAPS)
        self.records, self.is_new, self._gaps_made = opened(
            _records_spec(self.location, columns),
            TableSpec(self._gaps_location, gaps, partial(refuse_other_table, wanted=gaps)),
            self.location.refuse_unsafe if columns is not None else lambda: None,
        )
        self._commits = Commits(self.location, self.records)
        if columns is not None:
            self.add_columns(columns.lacking(self.records))
        # Commits up to here have no gaps that are no rows yet.
        self._looked = 0

    @classmethod
    def existing(cls, path: str, storage: Mapping[str, str] | None = None) -> Self:
        """One that is there already: reading from a table must not make it."""
        where = location(path, storage)
        if not is_table(where):
            raise PipelineFailed(f"there is no table at {where.uri}")
        return cls(path, storage)

    @classmethod
    def to_write(
        cls, path: str, storage: Mapping[str, str] | None = None, columns: ArchiveColumns | None = None
    ) -> Self:
        """Made if there is none, and refused where writers could overwrite each other."""
        return cls(path, storage, columns or ArchiveColumns())

    @property
    def gaps_table(self) -> DeltaTable:
        return self._gaps_made.result()

    @cached_property
    def _gap_commits(self) -> Commits:
        return Commits(self._gaps_location, self.gaps_table)

    # --- reading ----------------------------------------------------------------------------------------

    def position(self, topic: str) -> StreamOffset | None:
        """Return the epoch and the seq up to which a topic is archived."""
        epoch = self._commits.noted(_life(topic))
        return (
            None if epoch is None else StreamOffset(self._commits.noted(_reached(topic, epoch)) or 0, epoch)
        )

    def archived(self, topic: str, epoch: int) -> int | None:
        """Return the seq up to which one epoch of a topic is archived; None if nothing of it is."""
        return self._commits.noted(_reached(topic, epoch))

    @property
    def columns(self) -> pa.Schema:
        """Of the records, as files have them."""
        return columns_of(self.records)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.records.metadata().partition_columns)

    @property
    def log_retention(self) -> str:
        """The time for which entries of the table's log are kept at least."""
        told = self.records.metadata().configuration.get("delta.logRetentionDuration", "interval 30 days")
        return told.removeprefix("interval ")

    def files(self) -> list[DataFile]:
        """The files of the current version, with what their statistics say."""
        rows = pa.table(self.records.get_add_actions(flatten=True)).to_pylist()
        return [DataFile.from_action(row) for row in rows]

    def gaps(self) -> list[Gap]:
        # Not through `to_pyarrow_table`: its reading threads call back into Python, and a process that ends
        # soon afterwards can be aborted by one that still lets go of a file.
        rows = QueryBuilder().register("gaps", self.gaps_table).execute(_ALL_GAPS)
        return [Gap(**row) for row in pa.table(rows).to_pylist()]

    def all_gaps(self) -> list[Gap]:
        """Those, too, that a commit has noted and that are no rows yet."""
        later = [gap for commit in self._gaps_of(self._noted, self.records.version()) for gap in commit]
        return [*self.gaps(), *(Gap(**gap) for gap in later)]

    def refresh(self) -> None:
        self.records.update_incremental()
        self.gaps_table.update_incremental()

    # --- writing ----------------------------------------------------------------------------------------

    def commit(self, files: Iterable[DataFile], since: Offsets, ends: Offsets, gaps: Iterable[Gap]) -> None:
        """Files become part of the table and positions move, at once and durably; then gaps become rows.

        `since` is where the writer began to read. If the table stands elsewhere, another writer has been
        here: delta-rs compares only with what was committed since this object looked last.
        """
        for topic in ends:
            found = self.position(topic)
            if found != since.get(topic):
                raise Collision(
                    f"something else wrote to {self.path} at the same time, so nothing of this was: topic "
                    f'"{topic}" stands at {_told(found)}, and this began at {_told(since.get(topic))}'
                )
        self._gaps_made.result()  # there is no commit without a place for its gaps
        self._publish([_add(one) for one in files], _moves(ends), [asdict(gap) for gap in gaps])
        self.note_gaps()

    def add_columns(self, new: pa.Schema) -> None:
        """One that another writer adds at the same time is there as well, of the type that came first."""
        for _ in range(_NOTING_ATTEMPTS):
            try:
                add_columns(self.records, new)
                return
            except CommitFailedError:
                self.records.update_incremental()
        raise PipelineFailed(f"others kept changing {self.path}: stop them, and run this again")

    def replace(
        self,
        old: Iterable[DataFile],
        new: Iterable[DataFile],
        *,
        changed: bool = False,
        standing: Offsets | None = None,
    ) -> None:
        """Other files with the same records; `changed` if they are not the same.

        Two of these at a time collide. `standing` repeats where topics stand, so that it also collides with
        a writer that is about to move one of them, and has not heard of this.
        """
        now = int(time.time() * 1000)
        gone = [RemoveAction(one.path, changed, now, one.size) for one in old]
        moved = {_REWRITES: self.records.version(), **_moves(standing or {})}
        self._publish([*gone, *(_add(one, changed) for one in new)], moved)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Files that were written for a commit that did not come about; never one that the table names."""
        self.records.update_incremental()
        named = {one.path for one in self.files()}
        self.location.remove(one.path for one in files if one.path not in named)

    def vacuum(self, keep_hours: int) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda one: one.vacuum(keep_hours), (self._commits, self._gap_commits)))

    def note_gaps(self) -> None:
        """Bring the gap table up to the version of the records table; another writer may have done so."""
        if self.records.version() == 0:
            return  # it was just made
        for _ in range(_NOTING_ATTEMPTS):
            try:
                self._note_gaps()
                return
            except Collision:
                self.gaps_table.update_incremental()
        log.warning("gaps of %s become rows with the next commit: others keep noting theirs", self.path)

    def _note_gaps(self) -> None:
        version = self.records.version()
        gaps = [gap for commit in self._gaps_of(max(self._noted, self._looked), version) for gap in commit]
        if gaps or version - self._noted >= _NOTE_EVERY:
            table = pa.Table.from_pylist([{**gap, "ts": datetime.now(UTC)} for gap in gaps], GAPS)
            files = [_add(one) for one in write_files(table.to_batches(), self._gaps_location)]
            self._gap_commits.publish(files, {_GAPS_UP_TO: version}, {})
        self._looked = version

    @property
    def _noted(self) -> int:
        """Commits of the records table up to here have their gaps as rows."""
        return self._gap_commits.noted(_GAPS_UP_TO) or 0

    def _gaps_of(self, after: int, up_to: int) -> Iterable[list[dict[str, Any]]]:
        """Of the commits behind one version, up to another."""
        if up_to <= after:
            return
        for entry in reversed(self.records.history(up_to - after)):
            if after < entry["version"] <= up_to and _GAPS_KEY in entry:
                yield json.loads(entry[_GAPS_KEY])

    def _publish(
        self, actions: list[Any], moved: Mapping[str, int], gaps: Sequence[dict[str, Any]] | None = None
    ) -> None:
        before = self.records.version()
        # In a commit's metadata, because only one table can be committed at a time.
        told = {} if gaps is None else {_GAPS_KEY: json.dumps(gaps)}
        is_alone = self._commits.publish(actions, moved, told)
        if is_alone and not gaps and self._looked == before:
            self._looked = self.records.version()


def _moves(ends: Offsets) -> dict[str, int]:
    lives = {_life(topic): at.epoch for topic, at in ends.items()}
    return lives | {_reached(topic, at.epoch): at.seq for topic, at in ends.items()}


def _records_spec(where: Location, columns: ArchiveColumns | None) -> TableSpec:
    def refuse_other(table: DeltaTable) -> None:
        refuse_other_table(table, Schema.from_arrow(RECORDS))
        if columns is not None:
            refuse_unlike(table, columns, where.uri)

    made_with = columns or ArchiveColumns()
    schema = Schema.from_arrow(made_with.schema)
    return TableSpec(where, schema, refuse_other, made_with.partition_by)


def is_archived(where: Location, topic: str) -> bool:
    """Return whether a table has something of a topic, without creating anything."""
    return open_table(where).transaction_version(_life(topic)) is not None


def _told(position: StreamOffset | None) -> str:
    return "its beginning" if position is None else f"seq {position.seq} of epoch {position.epoch}"


def _life(topic: str) -> str:
    return f"topics/{topic}"


def _reached(topic: str, epoch: int) -> str:
    return f"topics/{topic}/{epoch}"


def _add(one: DataFile, changed: bool = True) -> AddAction:
    partition = {name: as_delta(value) for name, value in one.partition.items()}
    return AddAction(one.path, one.size, partition, int(time.time() * 1000), changed, one.stats())
