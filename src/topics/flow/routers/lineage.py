"""Recovery's memory of source records: what copies in unsealed runs are made from again.

It is filled from the journal, not from topics. A source may meanwhile have deleted, evicted or dropped what
was copied; the frames are still there, because a run that depends on them holds the journal back.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from topics import codec
from topics.codec import AnyRows
from topics.flow.routers.copies import carried_rows, copies_of
from topics.flow.routers.frames import COPIES, CopyPlan, CopyRange, Step
from topics.log import HotColumns, rows_of
from topics.storage import I64, Columns, Frame, Records, join_records


@dataclass(slots=True)
class Rendered:
    """Copies as the destination stores them. No frame they depend on lies below `position`."""

    rows: AnyRows
    position: int


@dataclass(slots=True)
class _Stretch:
    first: int
    count: int
    position: int
    # Reads the records only when a copy of them is wanted.
    load: Callable[[], Columns | None]


@dataclass(slots=True)
class _Known:
    firsts: list[int] = field(default_factory=list)
    stretches: list[_Stretch] = field(default_factory=list)
    loaded_at: int = -1
    loaded: Columns | None = None

    def add(self, stretch: _Stretch) -> None:
        if not self.firsts or stretch.first > self.firsts[-1]:
            self.firsts.append(stretch.first)
            self.stretches.append(stretch)

    def at(self, seq: int) -> tuple[_Stretch, Columns] | None:
        index = bisect_right(self.firsts, seq) - 1
        if index < 0 or seq >= self.firsts[index] + self.stretches[index].count:
            return None
        if index != self.loaded_at:
            self.loaded_at, self.loaded = index, self.stretches[index].load()
        return None if self.loaded is None else (self.stretches[index], self.loaded)


class Lineage:
    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def follow(self, topic_id: int) -> None:
        """Copies may be made from this topic: remember its records from here on."""
        self._known.setdefault(topic_id, _Known())

    def forget_all(self) -> None:
        self._known.clear()

    def follows(self, topic_id: int) -> bool:
        return topic_id in self._known

    def note_append(self, frame: Frame) -> None:
        known = self._known.get(frame.topic_id)
        if known is not None:
            known.add(_Stretch(frame.first_seq, frame.count, frame.position, lambda: _append_columns(frame)))

    def note_step(self, step: Step, position: int) -> None:
        """Copies are records of their destination, and may have been copied on from there."""
        for plan in step.plans:
            known = self._known.get(plan.dest)
            if known is None or not plan.kept:
                continue
            for piece in plan.pieces:
                if piece.kind == COPIES:
                    known.add(self._derived(step, plan, piece, position))

    def _derived(self, step: Step, plan: CopyPlan, piece: CopyRange, position: int) -> _Stretch:
        def load() -> Columns | None:
            rendered = self.render(step, plan, piece, position)
            if rendered is None:
                return None
            return _columns(rendered.rows)

        # Its own source may lie further back; a copy that depends on this stretch depends on that as well.
        lowest = position if step.carried is not None else self._lowest(step.source, piece, position)
        return _Stretch(piece.first_dest, piece.count, lowest, load)

    def _lowest(self, source_id: int, piece: CopyRange, position: int) -> int:
        known = self._known.get(source_id)
        if known is None:
            return position
        begin = max(bisect_right(known.firsts, piece.first_source) - 1, 0)
        end = bisect_right(known.firsts, piece.last_source)
        return min([position, *(stretch.position for stretch in known.stretches[begin:end])])

    def render(self, step: Step, plan: CopyPlan, piece: CopyRange, position: int) -> Rendered | None:
        """Make the copies of one piece again; None when their originals are not in the journal any more."""
        found = self._originals(step, piece.source_seqs(), position)
        if found is None:
            return None
        rows, lowest = found
        copies = copies_of(rows, with_node=plan.with_node, with_tag=plan.with_tag, stamp=plan.stamp)
        encoded = codec.encode([copies.write], piece.first_dest, plan.ts, copies.hops)
        return Rendered(encoded, lowest)

    def _originals(self, step: Step, seqs: I64, position: int) -> tuple[Records, int] | None:
        if step.carried is not None:
            rows = carried_rows(step.carried)
            return rows.take(np.searchsorted(rows.seqs, seqs)), position
        known = self._known.get(step.source)
        parts: list[Records] = []
        at = 0
        while at < len(seqs):
            found = None if known is None else known.at(int(seqs[at]))
            if found is None:
                return None
            stretch, columns = found
            stop = int(np.searchsorted(seqs, stretch.first + stretch.count))
            parts.append(columns.records(seqs[at:stop] - stretch.first))
            position = min(position, stretch.position)
            at = stop
        return join_records(parts), position


def _append_columns(frame: Frame) -> Columns:
    return _columns(rows_of(frame))


def _columns(rows: AnyRows) -> Columns:
    hot = HotColumns(rows.first_seq)
    hot.extend(rows)
    return hot.view()
