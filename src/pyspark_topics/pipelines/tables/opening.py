"""Tables as they are found, and made where there is none.

What lies there is looked at before anything is made, so that what is refused leaves nothing behind. Tables
are looked at, and made, at the same time: in an object store each takes a dozen requests in a row.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.places import Place, in_a_line, make_table, open_table


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
            table = make_table(self.where, self.columns, list(self.partition_by), dict(self.properties))
        except Exception as error:
            found = self.found()  # which another writer may have made meanwhile
            if found is None:
                raise PipelineFailed(
                    f"cannot make a table at {self.where.uri}: {in_a_line(error)}"
                ) from error
            return found
        self.refuse_unfit(table)
        return table


def opened(wanted: Sequence[Wanted], probe: Callable[[], None]) -> list[DeltaTable]:
    """All of them; none is made if one is refused, or if the probe of the place is."""
    with ThreadPoolExecutor(len(wanted) + 1) as threads:
        probed = threads.submit(probe)
        looked = threads.map(Wanted.found, wanted)
        probed.result()
        found = list(looked)
        lacking = [one for one, table in zip(wanted, found, strict=True) if table is None]
        list(threads.map(Wanted.refuse_taken, lacking))
        made = iter(list(threads.map(Wanted.made, lacking)))
    return [next(made) if table is None else table for table in found]
