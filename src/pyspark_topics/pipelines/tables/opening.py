"""Tables as they are found, and made where there is none.

What lies there is looked at before anything is made, so that what is refused leaves nothing behind. In an
object store each table takes a dozen requests in a row: both are looked at at the same time, and the second
is made while its owner goes on.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.places import Place, in_a_line, open_table


@dataclass(frozen=True)
class Wanted:
    """A table at a place: what it is made with, and what refuses one that does not fit."""

    where: Place
    columns: Schema
    refuse_unfit: Callable[[DeltaTable], None]
    partition_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def found(self) -> DeltaTable | None:
        try:
            table = open_table(self.where)
        except TableNotFoundError:
            return None
        except Exception as error:
            raise PipelineFailed(
                f"cannot look for a table at {self.where.uri}: {in_a_line(error)}"
            ) from error
        self.refuse_unfit(table)
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
            table = self.where.make_table(self.columns, self.partition_by, dict(self.properties))
        except Exception as error:
            found = self.found()  # which another writer may have made meanwhile
            if found is None:
                raise PipelineFailed(
                    f"cannot make a table at {self.where.uri}: {in_a_line(error)}"
                ) from error
            return found
        self.refuse_unfit(table)
        return table


@dataclass(frozen=True)
class Opened:
    table: DeltaTable
    # Nothing lay there before.
    is_new: bool
    # The second table, which may still be on its way.
    beside: Future[DeltaTable]


def opened(first: Wanted, second: Wanted, probe: Callable[[], None]) -> Opened:
    """None is made if one is refused, or if the probe of the place is. The second is made meanwhile."""
    both = first, second
    threads = ThreadPoolExecutor(3)
    try:
        probed = threads.submit(probe)
        looked = threads.map(Wanted.found, both)
        probed.result()
        found = list(looked)
        lacking = [one for one, table in zip(both, found, strict=True) if table is None]
        list(threads.map(Wanted.refuse_taken, lacking))
        table, beside = found
        made = first.made() if table is None else table
        return Opened(made, table is None, threads.submit(second.made if beside is None else lambda: beside))
    finally:
        threads.shutdown(wait=False)
