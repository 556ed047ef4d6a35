"""Commits to a Delta table, and what its commits have noted beside the files."""

import time
from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.places import MARK, Place, is_marked

# To remove old commits, delta-rs lists the whole log, which grows for a month: as often as it writes a
# checkpoint is enough.
_TIDY_EVERY = 100
# Files that are removed are a week old: a look at the table that is this old shows what is needed of them.
_FRESH_S = 600.0


class Collision(PipelineFailed):
    """Another writer committed first, and what we were about to commit may not fit any more."""


class Commits:
    """Notes are numbers under names, application transactions to Delta, and each stands until it is moved.

    delta-rs reads every commit since the last checkpoint to tell one of them. In an object store that is a
    request each; so they are asked for once, as long as the table stays at its version or only we move it.
    """

    def __init__(self, where: Place, table: DeltaTable) -> None:
        self._where = where
        self._table = table
        self._version = table.version()
        self._found: dict[str, int | None] = {}
        self._looked = time.monotonic()

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
        self._looked = time.monotonic()
        self._where.sync_commits(before + 1, table.version())  # ours is the first of them, or behind others
        is_alone = table.version() == before + 1
        if is_alone and self._version == before:
            self._found |= moved
            self._version = table.version()
        return is_alone

    def vacuum(self, keep_hours: int) -> None:
        """In full: also files that no commit ever named, such as those of a driver that was killed."""
        if time.monotonic() - self._looked > _FRESH_S:
            # Or files that others have committed meanwhile would count as nobody's.
            self._table.update_incremental()
            self._looked = time.monotonic()
        self._table.vacuum(keep_hours, dry_run=False, full=True)
