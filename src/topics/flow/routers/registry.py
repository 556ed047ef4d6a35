"""All routers of an engine: what changes them, which of them owe copies, and who waits for these copies."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from topics.core import DEFAULT_CONFIG, ApiError, limit_reached, require_router_name, topic_not_found
from topics.flow.routers.definitions import Router, RouterOptions, RouterTable, check_ends, encode
from topics.flow.routers.step import StepBuilder, read_window
from topics.log import (
    CallbackOp,
    Creation,
    Engine,
    Fail,
    Op,
    Topic,
    create_topic,
    require_room,
)
from topics.storage import FrameDraft, Kind


class _WaitingReader(NamedTuple):
    # The seq that each router has to reach.
    owed: list[tuple[Router, int]]
    go_on: Callable[[], None]


class WaitingReaders:
    """Readers of a destination that wait for the copies of all records that its source held when they came.

    Usually a reader makes the missing copies itself. A backlog would keep all other clients waiting, or take
    too much memory, so the background pass makes those copies.
    """

    def __init__(self, can_move: Callable[[Router], bool]) -> None:
        """No reader waits for a router for which `can_move` is false: it may be stuck for ever."""
        self._can_move = can_move
        self._waiting: list[_WaitingReader] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, behind: list[Router], go_on: Callable[[], None]) -> bool:
        """Call `go_on` when these routers have made the copies they owe now; False if no wait is needed."""
        waiting = _WaitingReader([(router, router.source.head) for router in behind], go_on)
        if self._is_over(waiting):
            return False
        self._waiting.append(waiting)
        return True

    def release_served(self) -> None:
        """Release readers that have nothing left to wait for."""
        over: list[_WaitingReader] = []
        still: list[_WaitingReader] = []
        for one in self._waiting:
            (over if self._is_over(one) else still).append(one)
        self._waiting = still
        for one in over:
            one.go_on()

    def release_all(self) -> None:
        """Release every reader: no more copies are made."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.go_on()

    def _is_over(self, waiting: _WaitingReader) -> bool:
        return not any(router.cursor < upto and self._can_move(router) for router, upto in waiting.owed)


# A reader does not wait for more than this; the rest follows in the background.
PULL_STEPS = 32
# A step takes a few milliseconds, which writers may have to wait behind it. It moves at most so much: copies
# over all destinations, and bytes of source records.
STEP_COPIES = 5_000
STEP_ROWS_MIN = 16
STEP_BYTES = 8 * 1024 * 1024


class Routers:
    """All routers of an engine: their definitions, and the forwarding itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.table = RouterTable()
        self.next_id = 1
        # Topics whose records steps in the journal refer to, and where the last such step ended.
        self.referred: dict[int, int] = {}
        self._listeners: dict[int, Callable[[], None]] = {}
        # Sources with records that some router may not have seen yet.
        self.owing: dict[int, Topic] = {}
        # Sources whose routers wait for room.
        self.stuck: dict[int, Topic] = {}
        # Called when a source begins to owe something.
        self.wake: Callable[[], None] = lambda: None
        # Whether there is as much in memory as there should be, and sealing has to come first.
        self.is_braked: Callable[[], bool] = lambda: False
        self.readers = WaitingReaders(self._can_move)

    # --- definitions ------------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        source_name: str,
        dest_name: str,
        options: RouterOptions,
        done: Callable[[Router, bool], None],
        fail: Fail,
        *,
        create_dest: bool = True,
        only_new: bool = False,
        last_check: Callable[[], None] = lambda: None,
    ) -> None:
        """Create or change; `done` is told whether it was created. Raises before anything changed.

        `only_new`: a router that is there stays as it is. `last_check` may refuse when all else is in order.
        """
        require_router_name(name)
        check_ends(source_name, dest_name)
        engine, table = self._engine, self.table
        source, dest = engine.by_name.get(source_name), engine.by_name.get(dest_name)
        if dest is None and not create_dest:
            raise topic_not_found(dest_name)
        existing = self._staying(name)
        if only_new and existing is not None:
            raise ApiError("router_exists", f'there is a router named "{name}" already', {"router": name})
        table.refuse_second_source(name, source, dest)
        if existing is not None:
            table.refuse_new_ends(existing, source, dest)
        else:
            limit = engine.settings.max_routers
            if limit and len(table) >= limit:
                raise limit_reached("max_routers", limit)
        if not options.allow_cycle:
            table.refuse_cycle(name, source, dest)
        last_check()
        if existing is not None:
            self._change(existing, options, done, fail)
        else:
            # Two topics and the router: nothing may be refused once the first of them exists.
            engine.queue.require_growth(3)
            source, dest = self._make_ends(source_name, dest_name)
            self._create(name, source, dest, options, done, fail)

    def _staying(self, name: str) -> Router | None:
        """The router of this name, unless it is about to go with one of its topics."""
        router = self.table.named(name)
        return router if router is not None and self._is_open(router) else None

    def _is_open(self, router: Router) -> bool:
        by_name = self._engine.by_name
        source, dest = router.source, router.dest
        is_listed = router.id in self.table.by_id and not router.leaving
        return is_listed and by_name.get(source.name) is source and by_name.get(dest.name) is dest

    def _make_ends(self, source_name: str, dest_name: str) -> tuple[Topic, Topic]:
        """Both or none: a refused router leaves no topic behind."""
        engine = self._engine
        missing = [name for name in (source_name, dest_name) if name not in engine.by_name]
        require_room(engine, len(missing))
        for name in missing:
            create_topic(engine, name, DEFAULT_CONFIG, lambda: None, lambda _: None)
        return engine.by_name[source_name], engine.by_name[dest_name]

    def _create(
        self,
        name: str,
        source: Topic,
        dest: Topic,
        options: RouterOptions,
        done: Callable[[Router, bool], None],
        fail: Fail,
    ) -> None:
        # What has a seq by now came before this router, committed or not.
        router = Router(self.next_id, name, source, dest, options, source.assigned)
        self.next_id += 1
        self.add(router)

        def apply(op: Op) -> None:
            router.committed = True
            done(router, True)

        def undo(error: ApiError) -> None:
            self.remove(router)
            fail(error)

        fact = router.definition(options, router.sent)
        self._submit(router, Kind.ROUTER_PUT, fact, apply, undo, as_op=Creation)

    def _change(
        self, router: Router, options: RouterOptions, done: Callable[[Router, bool], None], fail: Fail
    ) -> None:
        if options != router.options:
            # What was written under the old definition is forwarded under it.
            self.pull(router.dest)

        def apply(op: Op) -> None:
            router.change(options)
            done(router, False)

        self._submit(router, Kind.ROUTER_PUT, router.definition(options, router.sent), apply, fail)

    def _submit(
        self,
        router: Router,
        kind: Kind,
        fact: object,
        apply: Callable[[Op], None],
        fail: Fail,
        *,
        as_op: type[CallbackOp] = CallbackOp,
    ) -> None:
        engine = self._engine
        frame = FrameDraft(int(kind), encode(fact), ts=engine.now())
        op = as_op([frame], router.source, apply, fail, sync=True)
        op.others = (router.dest,)
        engine.queue.submit(op)

    def drop(self, name: str, done: Callable[[bool], None], fail: Fail) -> None:
        """Copies that were made stay; what was written before this call is still forwarded."""
        router = self.find(name)
        if router is None:
            done(False)
            return
        self.pull(router.dest)

        def apply(op: Op) -> None:
            was_there = router.id in self.table.by_id
            self.remove(router)
            done(was_there)

        def undo(error: ApiError) -> None:
            router.leaving = False
            fail(error)

        self._submit(router, Kind.ROUTER_DROP, router.id, apply, undo)
        router.leaving = True

    def find(self, name: str) -> Router | None:
        """A committed router, or None."""
        router = self.table.named(name)
        return router if router is not None and router.committed and not router.leaving else None

    def touching(self, topic_name: str, may_know: Callable[[str], bool]) -> list[str]:
        """Names of the routers that would go with this topic, as far as they may be known."""
        topic = self._engine.find(topic_name)
        if topic is None:
            return []
        names = [router.name for router in self.table.touching(topic) if router.committed]
        return sorted(filter(may_know, names))

    def add(self, router: Router) -> None:
        self.table.add(router)
        source = router.source
        router.dest.feed_from(source)
        if source.id not in self._listeners:
            self._listeners[source.id] = listener = lambda: self._note_owing(source)
            source.listeners.append(listener)

    def remove(self, router: Router) -> None:
        self.table.remove(router)
        source = router.source
        if not self.table.into(router.dest):
            router.dest.feed_from(None)
        if not self.table.from_source(source) and source.id in self._listeners:
            source.listeners.remove(self._listeners.pop(source.id))
            self.owing.pop(source.id, None)
            self.stuck.pop(source.id, None)

    # --- forwarding -------------------------------------------------------------------------------------

    def _note_owing(self, source: Topic) -> None:
        if source.id not in self.owing and not source.dropped:
            self.owing[source.id] = source
            self.wake()

    def note_all_owing(self) -> None:
        """After recovery: a router that is behind goes on where it stood."""
        for router in self.table.by_id.values():
            if router.is_behind:
                self._note_owing(router.source)

    def pull(self, topic: Topic) -> None:
        """Bring a destination up to date with its direct sources before a reader looks at it."""
        if topic.source is not None:
            self._pull(self._behind(topic), PULL_STEPS)

    def pull_for_reader(self, topic: Topic) -> None:
        """The same, but for a backlog: the background makes those copies.

        Where a destination was full, nobody has waited for that: there may be room again.
        """
        if topic.source is None:
            return
        behind = self._behind(topic)
        if behind and (not self._is_backlog(behind) or not all(map(self._can_move, behind))):
            self._pull(behind, self._steps)

    def keep_reader(self, topic: Topic, go_on: Callable[[], None]) -> bool:
        """True if a reader has to wait for such copies. `go_on` is called when those owed now are there."""
        behind = self._behind(topic)
        if not behind or not self._is_backlog(behind) or not self.readers.add(behind, go_on):
            return False
        # It may be owed without being noted, if a step has failed.
        for router in behind:
            self.owing[router.source.id] = router.source
        self.wake()
        return True

    def _is_backlog(self, behind: list[Router]) -> bool:
        """Too many copies are missing to be made in passing; where memory is full, a step is too many."""
        owed = max(router.source.head - router.sent for router in behind)
        return owed > self._steps * step_rows(len(behind))

    @property
    def _steps(self) -> int:
        """That a reader may make."""
        return 1 if self.is_braked() else PULL_STEPS

    def _can_move(self, router: Router) -> bool:
        return not router.is_blocked and self._engine.queue.refusals.may_forward and self._is_open(router)

    def _behind(self, topic: Topic) -> list[Router]:
        return [router for router in self.table.into(topic) if router.is_behind]

    def _pull(self, behind: list[Router], steps: int) -> None:
        queue = self._engine.queue
        # Called back in the middle of a commit, it would overtake what is still to take effect: the
        # background pass follows at once.
        if not behind or queue.effects.are_running or not queue.refusals.may_forward:
            return
        # Just these: other destinations of the same source can wait for the background.
        source = behind[0].source
        for _ in range(steps):
            if not self._step_all(source, behind):
                break
        queue.flush()
        if any(router.cursor < router.sent for router in behind):
            queue.effects.sync_for_reader()

    def pull_from(self, source: Topic) -> None:
        """Forward what a topic owes before it goes."""
        for dest in {r.dest.id: r.dest for r in self.table.from_source(source)}.values():
            self.pull(dest)

    def forward(self, is_over: Callable[[], bool]) -> bool:
        """Work through what is owed until time is over; True when there is more to do at once.

        Copies of one hop are what the next hop owes, so a chain is followed to its end.
        """
        queue = self._engine.queue
        self.owing.update(self.stuck)
        self.stuck = {}
        while self.owing and queue.refusals.may_forward:
            source = self.owing.pop(next(iter(self.owing)))
            moved = self.step(source, is_over)
            if moved:
                queue.flush()
            # Asked behind the flush, which may have refused the step. The others get their turn first.
            if any(router.sent < source.head for router in self.table.from_source(source)):
                (self.owing if moved else self.stuck)[source.id] = source
            if is_over():
                break
        if queue.refusals.failure is not None:
            # Writes are off until restart, and these are writes.
            self.owing, self.stuck = {}, {}
        elif not queue.refusals.may_forward:
            # Looked at again and again until there is room.
            self.stuck.update(self.owing)
            self.owing = {}
        return bool(self.owing)

    def step(self, source: Topic, is_over: Callable[[], bool] | None = None) -> bool:
        """Move the routers of one source by a step each, as many as time allows; False when none could."""
        return self._step_all(source, self.table.from_source(source), is_over)

    def _step_all(
        self, source: Topic, routers: list[Router], is_over: Callable[[], bool] | None = None
    ) -> bool:
        # With nothing waiting, a step is not refused by a full queue once its copies have their seqs.
        queue = self._engine.queue
        queue.flush()
        self._engine.refresh(source)
        if not queue.refusals.may_forward:
            return False
        by_position: dict[int, list[Router]] = {}
        for router in routers:
            is_open = router.committed and self._is_open(router) and not queue.holds(router.dest)
            if router.sent < source.head and is_open:
                by_position.setdefault(router.sent, []).append(router)
        moved = False
        # The routers furthest behind come first: should time be over, the others have waited less.
        positions = sorted(by_position)
        for position, ahead in pairwise([*positions, source.head]):
            # Only as far as the next ones stand, if they are to go on together from there.
            upto = source.head if is_over is None else ahead
            for some in in_portions(by_position[position], upto - position):
                moved = self._step_from(source, position, upto, some) or moved
                if moved and is_over is not None and is_over():
                    return True
        return moved

    def _step_from(self, source: Topic, position: int, upto: int, routers: list[Router]) -> bool:
        max_rows = step_rows(len(routers))
        if all(router.is_blocked for router in routers):
            max_rows = STEP_ROWS_MIN  # just to see whether there is room now
        window = read_window(source, position, max_rows, STEP_BYTES, upto)
        moved = StepBuilder(self._engine, source, window).submit(routers)
        if moved:
            self.referred[source.id] = self._engine.journal.position
        return moved


def step_rows(routers: int) -> int:
    """Source records that so many routers take in one step."""
    return max(STEP_COPIES // routers, STEP_ROWS_MIN)


def in_portions(routers: list[Router], records: int) -> Iterator[list[Router]]:
    """Routers that move in one step each, when so many records wait for all of them.

    Every portion is a frame in the journal, and there are never more of them than records.
    """
    copies = min(records, step_rows(len(routers))) * len(routers)
    portions = max(min(records, copies // STEP_COPIES), 1)
    size = -(-len(routers) // portions)
    for at in range(0, len(routers), size):
        yield routers[at : at + size]
