"""A seeded random history of a whole server with crashes and faults, judged after every one of them.

    make simulate SEED=7 STEPS=1000000

The same seed gives the same history. The table at the end says how often each fault was in force while each
operation ran, and how often it struck.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.crash.actors import Actors, set_clock
from tests.crash.disk import Crash
from tests.crash.faults import REFUSALS, Fault, FaultPlan
from tests.crash.staging import Staging
from tests.crash.verify import Found, crash, judge, judge_damaged
from tests.crash.world import World
from topics.core.errors import ApiError, WritesOff
from topics.log import read_page

# Steps between two misfortunes, on average, and the life of one world.
CALM_STEPS = 120
WORLD_STEPS = 3000
RECOVERY = "recovery"
# What worlds keep in reserve.
RESERVES = (0, 8 * 1024, 64 * 1024)
# At which of the calls it could strike a fault does: many operations make only one or two.
SOON = (1, 1, 1, 2, 2, 3, 5, 8)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.staging = Staging()
        self.met: Counter[tuple[Fault, str]] = Counter()
        self.struck: Counter[tuple[Fault, str]] = Counter()
        self.steps = self.crashes = self.worlds = 0
        self._begin()

    def close(self) -> None:
        self.staging.close()

    def _begin(self) -> None:
        self.worlds += 1
        self.world = World(self.rng, disk_reserve_bytes=self.rng.choice(RESERVES))
        self.actors = Actors(self.world, self.rng, self.staging)
        self._until = self.steps + WORLD_STEPS
        self._next_fault = self.steps + self.rng.randrange(2 * CALM_STEPS)

    def run(self, steps: int, progress: Callable[[int], None] = lambda _: None) -> None:
        last = self.steps + steps
        while self.steps < last:
            self.step()
            if not self.steps % 1000:
                progress(self.steps)

    def step(self) -> None:
        self.steps += 1
        if self.steps >= self._until:
            self._crash(power=self.rng.random() < 0.5)
            self._begin()
        operation = self.actors.choose()
        if self.steps >= self._next_fault:
            # Rare operations meet as many faults as common ones.
            operation = self.rng.choice([*self.actors.steps, RECOVERY])
            self._misfortune(self.rng.choice(list(Fault)), operation)
            self._next_fault = self.steps + 1 + self.rng.randrange(2 * CALM_STEPS)
        else:
            self.actors.step(operation)
            self.actors.settle()

    def meet(self, fault: Fault, operation: str) -> None:
        """A little ordinary life, and then just this."""
        for _ in range(20):
            self.actors.step(self.actors.choose())
            self.actors.settle()
        self._misfortune(fault, operation)

    # --- misfortunes ------------------------------------------------------------------------------------

    def _misfortune(self, fault: Fault, operation: str) -> None:
        self.met[fault, operation] += 1
        if fault not in (Fault.KILL, Fault.POWER_LOSS):
            self.world.make_room()
        if fault in (Fault.KILL, Fault.POWER_LOSS):
            self._stop_within(fault, operation)
        elif fault in REFUSALS:
            self._refuse_within(fault, operation)
        elif fault is Fault.ROT:
            self._rot_after(operation)
        else:
            self._misdirect_within(operation)

    def _operate(self, operation: str) -> None:
        if operation == RECOVERY:
            self._restart(power=False)
        else:
            self.actors.step(operation)
            self.world.commit()

    def _stop_within(self, fault: Fault, operation: str) -> None:
        """The machine stops behind one of the operation's changes, or, when it makes fewer, after it."""
        world, power = self.world, fault is Fault.POWER_LOSS
        synced = world.engine.journal.synced
        if operation == RECOVERY:
            synced = self._crash_only(power=power)
        world.disk.crash_at = world.disk.mutations + self.rng.choice(SOON)
        try:
            if operation == RECOVERY:
                world.open()
            else:
                self._operate(operation)
        except Crash:
            self.struck[fault, operation] += 1
        if operation != RECOVERY:
            synced = self._crash_only(power=power)
        elif power:
            world.disk.crash(self.rng)
        else:
            world.disk.kill()
        self._open_and_judge(synced if power else None)

    def _refuse_within(self, fault: Fault, operation: str) -> None:
        """A call fails. Writing may be over then: readers are served, writers are told, a restart helps."""
        world = self.world
        if operation == RECOVERY:
            power = self.rng.random() < 0.5
            synced = self._crash_only(power=power)
            plan = world.disk.faults = FaultPlan(fault, self.rng, self.rng.choice(SOON))
            self._open_and_judge(synced if power else None)
            self.struck[fault, operation] += plan.has_fired
            return
        plan = world.disk.faults = FaultPlan(fault, self.rng, self.rng.choice(SOON))
        damage = world.engine.totals.damage
        try:
            self._operate(operation)
        except (OSError, ApiError):
            pass
        except AssertionError:
            if world.engine.totals.damage == damage:
                raise
        world.disk.faults = None
        self.struck[fault, operation] += plan.has_fired
        # Where there was no room, there is some again.
        world.look_for_room()
        if world.queue.refusals.failure is not None:
            self._check_read_only()
        if world.engine.totals.damage != damage:
            self._restart_damaged()
        elif world.queue.refusals.failure is not None:
            self._restart(power=self.rng.random() < 0.5)

    def _check_read_only(self) -> None:
        world = self.world
        for topic in list(world.engine.by_id.values()):
            if topic.committed:
                read_page(world.engine, topic, 0, 100, 1 << 20)
        failure = world.queue.refusals.failure
        assert failure is not None
        if world.engine.writes_off is WritesOff.DISK_FULL:
            world.make_room()
            assert world.queue.refusals.failure is None, "there is room, and no write is taken"
        else:
            assert "writes are off until restart" in str(failure)

    def _rot_after(self, operation: str) -> None:
        """A bit turns over in a file that the operation wrote, while nobody has it open."""
        world = self.world
        world.disk.written.clear()
        self._operate(operation)
        world.commit()
        if world.queue.refusals.failure is not None:
            return
        self._crash_only(power=False)
        written = [path for path in world.disk.written if world.disk.exists(path)]
        # The page is written all the time and never rests; nothing watches over its bits.
        path = self.rng.choice(sorted(written or (p for p in world.disk.contents() if "/journal/" in p)))
        world.disk.rot(path, self.rng)
        self.struck[Fault.ROT, operation] += 1
        world.open()
        if "/snapshots/" in path:
            # There are two of them, and the journal that the older one needs.
            judge(world, Found(world), None)
            # Before it can happen again, there is another one.
            assert world.here.checkpointer.is_due()
            world.checkpoint()
        else:
            judge_damaged(world, Found(world), may_bring_back="/journal/" in path)
            self._begin()

    def _misdirect_within(self, operation: str) -> None:
        """A write lands elsewhere, and nobody knows until the page cache is gone."""
        world = self.world
        if operation == RECOVERY:
            self._crash_only(power=False)
        plan = world.disk.faults = FaultPlan(Fault.MISDIRECTION, self.rng, self.rng.choice(SOON))
        if operation == RECOVERY:
            self._open_and_judge(None)
        else:
            # A snapshot is read back, and not taken for one if it is elsewhere.
            with suppress(OSError):
                self._operate(operation)
        self.struck[Fault.MISDIRECTION, operation] += plan.has_fired
        world.disk.faults = None
        # Later frames prove that the one that is missing had been there. A stray write that is still to reach
        # the medium when the power goes could take the proof as well; docs/guarantees.md says so.
        world.disk.write_back()
        for _ in range(2):
            world.append("fsync", [world.draft()])
            world.commit()
        self._crash_only(power=True)
        world.open()
        judge_damaged(world, Found(world), may_bring_back=True)
        self._begin()

    # --- crashes ----------------------------------------------------------------------------------------

    def _crash_only(self, *, power: bool) -> int:
        synced = self.world.engine.journal.synced
        crash(self.world, power=power)
        self._let_time_jump(power=power)
        self.actors.forget()
        self.crashes += 1
        return synced

    def _let_time_jump(self, *, power: bool) -> None:
        """While nothing runs: the clock may be set, and of a machine that starts anew it begins elsewhere."""
        clock, rng = self.world.clock, self.rng
        if power:
            clock.reboot(rng.randrange(100_000))
        if rng.random() < 0.2:
            set_clock(clock, rng)

    def _crash(self, *, power: bool) -> None:
        synced = self._crash_only(power=power)
        self._open_and_judge(synced if power else None)

    def _restart(self, *, power: bool) -> None:
        self._crash(power=power)

    def _restart_damaged(self) -> None:
        """A reader met a file it could not read: what that held is announced, or back after a restart."""
        world = self.world
        self._crash_only(power=False)
        world.open()
        judge_damaged(world, Found(world), may_bring_back=False)
        self._begin()

    def _open_and_judge(self, synced: int | None) -> None:
        """Start; when the disk refuses, the operator starts again, and this time it does not."""
        world = self.world
        plan = world.disk.faults
        try:
            world.open()
        except OSError:
            world.disk.kill()
            world.open()
        found = Found(world)
        world.disk.faults = None
        if plan is not None and plan.fault is Fault.READ_ERROR and plan.has_fired:
            # It may have struck where a segment was read, which is announced as lost then.
            judge_damaged(world, found, may_bring_back=synced is not None)
            self._begin()
        else:
            judge(world, found, synced)
        world.look_for_room()
        if world.queue.refusals.failure is not None:
            # It came up to be read, and no more.
            self._check_read_only()
            if world.queue.refusals.failure is not None:
                self._crash(power=self.rng.random() < 0.5)

    # --- account ----------------------------------------------------------------------------------------

    def table(self) -> str:
        operations = [*self.actors.steps, RECOVERY]
        width = max(map(len, operations))
        lines = [" " * width + "".join(f"{fault.value:>19}" for fault in Fault)]
        for operation in operations:
            cells = (f"{self.met[f, operation]}/{self.struck[f, operation]}" for f in Fault)
            lines.append(f"{operation:<{width}}" + "".join(f"{cell:>19}" for cell in cells))
        return "\n".join(lines)

    def empty_cells(self) -> list[tuple[Fault, str]]:
        return [
            (fault, operation)
            for fault in Fault
            for operation in (*self.actors.steps, RECOVERY)
            if not self.met[fault, operation]
        ]
