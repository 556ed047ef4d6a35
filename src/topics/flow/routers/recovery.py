"""Routers across restarts: their state in snapshots, their frames, and the records that copies are made from.

`Lineage` is filled from the journal, not from topics. A source may meanwhile have deleted, evicted or dropped
what was copied. The frames are still there, because a run that depends on them holds the journal back.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from topics import codec
from topics.codec import AnyRows
from topics.flow.routers.copies import PendingCopies, carried_rows, copies_of
from topics.flow.routers.definitions import (
    COPIES,
    GONE,
    CopyPlan,
    CopyRange,
    Definition,
    Router,
    RoutersState,
    RouterState,
    Step,
    decode_definition,
    decode_router_id,
    decode_step,
    state_from_plain,
)
from topics.flow.routers.registry import Routers
from topics.log import Engine, Extension, HotColumns, Topic, expire, is_loaded, load_rows, rows_of
from topics.log.remove import ledger
from topics.storage import I64, Columns, Frame, Kind, Records, join_records


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
        self.known: dict[int, _Known] = {}

    def follow(self, topic_id: int) -> None:
        """Copies may be made from this topic: remember its records from here on."""
        self.known.setdefault(topic_id, _Known())

    def note_append(self, frame: Frame) -> None:
        known = self.known.get(frame.topic_id)
        if known is not None:
            load = partial(_columns_of, frame)
            known.add(_Stretch(frame.first_seq, frame.count, frame.position, load))

    def note_step(self, step: Step, position: int) -> None:
        """Copies are records of their destination, and may have been copied on from there."""
        for plan in step.plans:
            known = self.known.get(plan.dest)
            if known is None or not plan.kept:
                continue
            for piece in plan.pieces:
                if piece.kind == COPIES:
                    known.add(self._derived(step, plan, piece, position))

    def _derived(self, step: Step, plan: CopyPlan, piece: CopyRange, position: int) -> _Stretch:
        def load() -> Columns | None:
            made = self.render(step, plan, piece, position)
            return None if made is None else _columns(made[0])

        # Its own source may lie further back; a copy that depends on this stretch depends on that as well.
        lowest = position if step.carried is not None else self._lowest(step.source, piece, position)
        return _Stretch(piece.first_dest, piece.count, lowest, load)

    def _lowest(self, source_id: int, piece: CopyRange, position: int) -> int:
        known = self.known.get(source_id)
        if known is None:
            return position
        begin = max(bisect_right(known.firsts, piece.first_source) - 1, 0)
        end = bisect_right(known.firsts, piece.last_source)
        return min([position, *(stretch.position for stretch in known.stretches[begin:end])])

    def render(
        self, step: Step, plan: CopyPlan, piece: CopyRange, position: int
    ) -> tuple[AnyRows, int] | None:
        """Make the copies of one piece again; None when their originals are not in the journal any more.

        Returns the rows as the destination stores them, and the position of the first frame they depend on.
        """
        found = self._originals(step, piece.source_seqs(), position)
        if found is None:
            return None
        rows, lowest = found
        copies = copies_of(rows, with_node=plan.with_node, with_tag=plan.with_tag, stamp=plan.stamp)
        return codec.encode([copies.write], piece.first_dest, plan.ts, copies.hops), lowest

    def _originals(self, step: Step, seqs: I64, position: int) -> tuple[Records, int] | None:
        if step.carried is not None:
            rows = carried_rows(step.carried)
            return rows.take(np.searchsorted(rows.seqs, seqs)), position
        known = self.known.get(step.source)
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


def _columns_of(frame: Frame) -> Columns:
    return _columns(rows_of(frame))


def _columns(rows: AnyRows) -> Columns:
    hot = HotColumns(rows.first_seq)
    hot.extend(rows)
    return hot.view()


log = logging.getLogger("topics.recovery")


class RouterRecovery(Extension):
    """The engine's extension for routers."""

    name = "routers"
    kinds = (Kind.ROUTER_PUT, Kind.ROUTER_DROP, Kind.ROUTE)

    def __init__(self, engine: Engine, routers: Routers) -> None:
        self._engine = engine
        self._routers = routers
        self._lineage = Lineage()

    # --- snapshot ---------------------------------------------------------------------------------------

    def dump(self) -> RoutersState:
        routers = self._routers
        oldest = self._engine.journal.files[0].base
        routers.referred = {source: end for source, end in routers.referred.items() if end > oldest}
        states = [_state(router) for router in routers.table.by_id.values() if router.committed]
        return RoutersState(routers.next_id, states, routers.referred)

    def load(self, state: Any) -> None:
        saved = state_from_plain(state)
        self._routers.next_id = saved.next_id
        self._routers.referred = saved.referred
        for source_id in saved.referred:
            self._lineage.follow(source_id)
        for each in saved.routers:
            router = self._restore(each.definition)
            if router is not None:
                router.forwarded = each.forwarded
                router.keys_scanned, router.keys_seen = each.keys_scanned, each.keys_seen

    def topic_dropped(self, topic: Topic) -> None:
        for router in self._routers.table.touching(topic):
            self._routers.remove(router)

    def start(self) -> None:
        """Let go of the old journal, and go on forwarding."""
        self._lineage.known.clear()
        self._routers.note_all_owing()

    def follows(self, topic_id: int) -> bool:
        """Copies are made again from the records that they were made from."""
        return topic_id in self._lineage.known

    def append_read(self, frame: Frame) -> None:
        self._lineage.note_append(frame)

    # --- below the snapshot -----------------------------------------------------------------------------

    def reload(self, frame: Frame) -> None:
        """Copies in runs that were not sealed by then; everything else is in the snapshot."""
        if frame.kind == Kind.ROUTER_PUT:
            self._lineage.follow(decode_definition(frame.payload).source)
        elif frame.kind == Kind.ROUTE:
            step = decode_step(frame.payload)
            for plan in step.plans:
                dest = self._engine.by_id.get(plan.dest)
                if dest is not None and plan.kept:
                    for piece in plan.pieces:
                        self._load_again(step, plan, piece, dest, frame.position)
            self._lineage.note_step(step, frame.position)

    def _load_again(self, step: Step, plan: CopyPlan, piece: CopyRange, dest: Topic, position: int) -> None:
        wanted = piece.kind == COPIES and piece.last_dest >= dest.floor and piece.first_dest <= dest.head
        if not wanted or is_loaded(dest, piece.first_dest):
            return
        made = self._lineage.render(step, plan, piece, position)
        if made is not None:
            load_rows(self._engine, dest, *made)

    # --- above the snapshot -----------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        if frame.kind == Kind.ROUTER_PUT:
            self._replay_definition(decode_definition(frame.payload))
        elif frame.kind == Kind.ROUTER_DROP:
            router = self._routers.table.by_id.get(decode_router_id(frame.payload))
            if router is not None:
                self._routers.remove(router)
        else:
            step = decode_step(frame.payload)
            self._routers.referred[step.source] = frame.end
            for plan in step.plans:
                self._replay_plan(step, plan, frame)
            self._lineage.note_step(step, frame.position)

    def _replay_definition(self, definition: Definition) -> None:
        table = self._routers.table
        self._routers.next_id = max(self._routers.next_id, definition.router + 1)
        router = table.by_id.get(definition.router)
        if router is not None:
            router.change(definition.options)
            return
        namesake = table.named(definition.name)
        if namesake is not None:
            self._routers.remove(namesake)  # the frame that ended it is damaged
        self._restore(definition)

    def _restore(self, definition: Definition) -> Router | None:
        self._lineage.follow(definition.source)
        by_id = self._engine.by_id
        source, dest = by_id.get(definition.source), by_id.get(definition.dest)
        if source is None or dest is None:
            return None
        router = Router(
            definition.router, definition.name, source, dest, definition.options, definition.cursor
        )
        router.committed = True
        self._routers.add(router)
        self._engine.derived.add(router.dest.id)
        return router

    def _replay_plan(self, step: Step, plan: CopyPlan, frame: Frame) -> None:
        router = self._routers.table.by_id.get(plan.router)
        if router is not None:
            router.sent = plan.cursor
        dest = self._engine.by_id.get(plan.dest)
        if dest is None:
            return
        pending = PendingCopies(router, dest, plan, frame.ts, [])
        if plan.pieces:
            expire(dest, frame.ts)
            first = plan.pieces[0].first_dest
            if first > dest.head + 1:
                dest.add_hole(dest.head + 1, first - 1, ledger.LOST, found_ms=self._engine.now())
                self._engine.totals.found_damage()
            pending.sizes = [
                self._stage_again(step, plan, piece, dest, frame.position) for piece in plan.pieces
            ]
            self._engine.touched.add(dest)
        pending.apply(self._engine)

    def _stage_again(self, step: Step, plan: CopyPlan, piece: CopyRange, dest: Topic, position: int) -> int:
        """Stage what had been staged the first time; returns what it counts for."""
        if piece.kind != COPIES:
            dest.skip_to(piece.last_dest)
            return 0
        made = self._lineage.render(step, plan, piece, position) if plan.kept else None
        if made is None:
            if plan.kept:
                log.error("%d copies in %s cannot be made again and are lost", piece.count, dest.name)
                self._engine.totals.found_damage()
            piece.kind = GONE
            dest.skip_to(piece.last_dest, plan.ts)
            return 0
        rows, position = made
        dest.append(rows, position, is_kept=plan.kept)
        return rows.size


def _state(router: Router) -> RouterState:
    definition = router.definition(router.options, router.cursor)
    return RouterState(definition, router.forwarded, router.keys_scanned, router.keys_seen)
