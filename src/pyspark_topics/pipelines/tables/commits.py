"""Commits to a Delta table, and what its commits have noted beside the files."""

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
from pyspark_topics.pipelines.tables.places import Place

# A listing of the whole log, which grows for a month: now and then is enough, see `tidy`.
_WITHOUT_TIDYING = PostCommitHookProperties(cleanup_expired_logs=False)
_TIDIES = "delta.enableExpiredLogCleanup"


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

    def noted(self, name: str) -> int | None:
        """At the version at which the table was looked at last."""
        if self._table.version() != self._version:
            self._found.clear()
            self._version = self._table.version()
        if name not in self._found:
            self._found[name] = self._table.transaction_version(name)
        return self._found[name]

    def publish(
        self, actions: Sequence[AddAction | RemoveAction], moved: Mapping[str, int], told: Mapping[str, str]
    ) -> bool:
        """Durable when it returns. Whether nobody else has committed since we looked last."""
        table, before = self._table, self._table.version()
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
                post_commithook_properties=_WITHOUT_TIDYING,
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

    def tidy(self, keep_hours: int) -> None:
        """Removes files that no commit names for so long, and commits that are older than the table keeps."""
        self._table.vacuum(keep_hours, dry_run=False, full=True)
        if self._table.metadata().configuration.get(_TIDIES, "true") == "true":
            self._table.cleanup_metadata()
