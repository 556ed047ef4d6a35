"""A batch of records, rendered once: the rows are what readers get, and what the journal holds."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import UNSET, Raw

from topics.log.write.append_form import Line, PlainLine
from topics.storage import rows as row_text
from topics.storage.filesystem import Buffer

if TYPE_CHECKING:
    from topics.log.remove.tags import Generation
    from topics.log.run import HotColumns

_encode_lines = msgspec.json.Encoder().encode_lines


class Batch:
    """Records ready to be given seqs: everything about them is checked, nothing is assigned."""

    __slots__ = ("_lines", "count", "data_lens", "ends", "meta_lens", "nodes", "size", "tags")

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
        lines: list[Line] | list[PlainLine],
        data_lens: Sequence[int],
        meta_lens: Sequence[int] | None = None,
        nodes: list[str | None] | None = None,
        tags: list[str | None] | None = None,
    ) -> None:
        self._lines = lines
        self.count = len(lines)
        # As the journal and the columns in memory want them.
        self.data_lens = array("I", data_lens)
        self.meta_lens = meta_lens
        self.nodes = nodes
        self.tags = tags
        self.size = sum(data_lens) + (sum(meta_lens) if meta_lens is not None else 0)
        # Where each row ends, once it was asked for: the same rows may be stored in many places.
        self.ends: np.ndarray | None = None

    def render(self, first_seq: int, ts: int) -> bytes | memoryview:
        """The records as every reader will receive them, a line each."""
        self.ends = None
        if (
            self.count >= row_text.FEWEST_ROWS
            and first_seq >= row_text.LOWEST_SEQ
            and self.meta_lens is None
            and self.nodes is None
        ):
            return row_text.plain_rows([line.data for line in self._lines], first_seq, ts)
        seq = first_seq
        for line in self._lines:
            line.seq = seq
            line.ts = ts
            seq += 1
        return _encode_lines(self._lines)

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        """Where each row ends."""
        assert isinstance(rows, bytes)
        if self.count > 1 and self.meta_lens is None and self.nodes is None:
            # Around its data every row has the same text, but for the digits of its seq, and those only grow:
            # as many in the last row as in the first means as many in all. Adding beats looking for newlines.
            data_lens = np.frombuffer(self.data_lens, np.uint32)
            around = rows.index(b"\n") + 1 - self.data_lens[0]
            last = len(rows) - 1 - rows.rindex(b"\n", 0, -1) - self.data_lens[-1]
            if around == last:
                return np.cumsum(data_lens + np.uint32(around), dtype=np.uint32)
        return row_ends(rows, self.count)

    def ends_behind(self, offset: int) -> bytes | None:
        """The same as the journal has it, behind so many bytes of other rows; None if it takes an effort."""
        return None

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
    data: list[bytes],
    metas: list[bytes | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
) -> Batch:
    """Records that are already compact JSON and already checked (copies, dead letters, bulk appends)."""
    lines = [
        Line(
            origin=UNSET if nodes is None or nodes[i] is None else nodes[i],
            data=Raw(value),
            meta=UNSET if metas is None or (meta := metas[i]) is None else Raw(meta),
        )
        for i, value in enumerate(data)
    ]
    meta_lens = None if metas is None else [0 if meta is None else len(meta) for meta in metas]
    return Batch(
        lines,
        [len(value) for value in data],
        meta_lens if meta_lens is not None and any(meta_lens) else None,
        nodes if nodes is not None and any(node is not None for node in nodes) else None,
        tags if tags is not None and any(tag is not None for tag in tags) else None,
    )
