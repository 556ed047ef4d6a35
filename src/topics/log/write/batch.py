"""A batch of records, rendered once: the rows are what readers get, and what the journal holds."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topics.storage import rows as row_text
from topics.storage.filesystem import Buffer
from topics.storage.rows import Value

if TYPE_CHECKING:
    from topics.log.remove.tags import Generation
    from topics.log.run import HotColumns

# The data of records that have nothing else, in ASCII, and how long each is.
Plain: TypeAlias = tuple[list[str], list[int]]
# Calls into numpy cost a microsecond each: for fewer rows, others are faster.
_FEWEST_ADDED = 16


class Batch:
    """Records ready to be given seqs: everything about them is checked, nothing is assigned."""

    __slots__ = (
        "_around",
        "_metas",
        "_values",
        "count",
        "data_lens",
        "ends",
        "meta_lens",
        "nodes",
        "size",
        "tags",
    )

    # The payload of a frame and its flags, where rendering has made them.
    prepared: tuple[Buffer, int] | None = None
    # Of batches so large that they are rendered beside the loop: the time in the rows.
    rendered_ms: int | None = None
    # The accelerator renders it: gigabytes a second.
    is_quick = False
    # Of those that get a run of their own: what it consists of, and its tags.
    columns: "HotColumns | None" = None
    generation: "Generation | None" = None

    def __init__(
        self,
        values: Sequence[Value],
        data_lens: Sequence[int],
        *,
        metas: Sequence[Value | None] | None = None,
        meta_lens: Sequence[int] | None = None,
        nodes: list[str | None] | None = None,
        tags: list[str | None] | None = None,
    ) -> None:
        """A column that is None is one of which no record has anything."""
        self._values = values
        self._metas = metas
        # How much longer than its data each row is, if that is the same for all of them.
        self._around: int | None = None
        self.count = len(values)
        # As the journal and the columns in memory want them.
        self.data_lens = array("I", data_lens)
        self.meta_lens = meta_lens
        self.nodes = nodes
        self.tags = tags
        self.size = sum(data_lens) if meta_lens is None else sum(data_lens) + sum(meta_lens)
        # Where each row ends, once it was asked for: the same rows may be stored in many places.
        self.ends: np.ndarray | None = None

    def render(self, first_seq: int, ts: int) -> bytes | memoryview:
        """The records as every reader will receive them, a line each."""
        self.ends = None
        rows = row_text.render_rows(self._values, first_seq, ts, self.nodes, self._metas)
        self._around = self._around_each(rows)
        return rows

    def _around_each(self, rows: bytes) -> int | None:
        """How much longer than its data each row is; None if that differs."""
        if self.count == 1 or self.meta_lens is not None or self.nodes is not None:
            return None
        # The text around data is the same but for the digits of the seq, and those only become more: as many
        # in the last row as in the first means as many in all.
        around = rows.index(b"\n") + 1 - self.data_lens[0]
        last = len(rows) - 1 - rows.rindex(b"\n", 0, -1) - self.data_lens[-1]
        return around if around == last else None

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        """Where each row ends."""
        if self._around is None:
            assert isinstance(rows, bytes)
            self._around = self._around_each(rows)
        ends = self.ends_behind(0)
        return row_ends(rows, self.count) if ends is None else np.frombuffer(ends, np.uint32)

    def ends_behind(self, offset: int) -> bytes | None:
        """The same as the journal has it, behind so many bytes of other rows; None if it takes an effort."""
        if self._around is None or self.count < _FEWEST_ADDED:
            return None
        # Adding beats looking for newlines.
        ends = np.frombuffer(self.data_lens, np.uint32) + np.uint32(self._around)
        ends[0] += offset
        return np.add.accumulate(ends, out=ends).tobytes()

    def prepare(self, first_seq: int, ts: int, now: int | None = None) -> None:
        """Render ahead of time, on any thread: of use if seq and time are as expected. Small ones do not.

        `now`: the time at which the write is to have been asked for, if it is written for itself.
        """

    def restamp(self, first_seq: int, ts: int) -> bool:
        """Make what was rendered ahead of time fit these; False where that cannot be done."""
        return False

    def forget_prepared(self) -> None:
        """What rendering has made beside the rows is not needed."""


def row_ends(rows: bytes | memoryview, count: int) -> np.ndarray:
    """Where each row ends. Newlines separate rows and never occur inside one."""
    if count == 1:
        return np.array([len(rows)], np.uint32)
    return (np.flatnonzero(np.frombuffer(rows, np.uint8) == 10) + 1).astype(np.uint32)


def batch_from_columns(
    values: Sequence[Value],
    metas: Sequence[Value | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
    data_lens: Sequence[int] | None = None,
) -> Batch:
    """Records that are already compact JSON and already checked; columns may hold nothing."""
    meta_lens = None if metas is None else [0 if meta is None else len(meta) for meta in metas]
    if meta_lens is not None and not any(meta_lens):
        metas = meta_lens = None
    nothing = [None] * len(values)
    return Batch(
        values,
        list(map(len, values)) if data_lens is None else data_lens,
        metas=metas,
        meta_lens=meta_lens,
        nodes=None if nodes == nothing else nodes,
        tags=None if tags == nothing else tags,
    )
