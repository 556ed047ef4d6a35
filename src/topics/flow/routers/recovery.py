"""Routers across restarts: their frames read back, and their plan of the snapshot."""

import logging
from typing import Any

from topics.flow.routers import frames
from topics.flow.routers.definitions import Definition, Router
from topics.flow.routers.frames import COPIES, GONE, CopyPlan, CopyRange, RouterState, Step
from topics.flow.routers.lineage import Lineage
from topics.flow.routers.pending_copies import PendingCopies
from topics.flow.routers.registry import Routers
from topics.log import Engine, Extension, Topic, expire, is_loaded, load_rows
from topics.log.remove import ledger
from topics.storage import Frame, Kind

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

    def dump(self) -> frames.RoutersState:
        routers = self._routers
        oldest = self._engine.journal.files[0].base
        routers.referred = {source: end for source, end in routers.referred.items() if end > oldest}
        states = [_state(router) for router in routers.table.by_id.values() if router.committed]
        return frames.RoutersState(routers.next_id, states, routers.referred)

    def load(self, state: Any) -> None:
        saved = frames.state_from_plain(state)
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
        self._lineage.forget_all()
        self._routers.note_all_owing()

    def follows(self, topic_id: int) -> bool:
        """Copies are made again from the records that they were made from."""
        return self._lineage.follows(topic_id)

    def append_read(self, frame: Frame) -> None:
        self._lineage.note_append(frame)

    # --- below the snapshot -----------------------------------------------------------------------------

    def reload(self, frame: Frame) -> None:
        """Copies in runs that were not sealed by then; everything else is in the snapshot."""
        if frame.kind == Kind.ROUTER_PUT:
            self._lineage.follow(frames.decode_definition(frame.payload).source)
        elif frame.kind == Kind.ROUTE:
            step = frames.decode_step(frame.payload)
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
            load_rows(self._engine, dest, made.rows, made.position)

    # --- above the snapshot -----------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        if frame.kind == Kind.ROUTER_PUT:
            self._replay_definition(frames.decode_definition(frame.payload))
        elif frame.kind == Kind.ROUTER_DROP:
            router = self._routers.table.by_id.get(frames.decode_router_id(frame.payload))
            if router is not None:
                self._routers.remove(router)
        else:
            step = frames.decode_step(frame.payload)
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
        dest.append(made.rows, made.position, is_kept=plan.kept)
        return made.rows.size


def _state(router: Router) -> RouterState:
    definition = router.definition(router.options, router.cursor)
    return RouterState(definition, router.forwarded, router.keys_scanned, router.keys_seen)
