"""Admission to the log: every append and every read passes here, whichever protocol brings it.

    append:  wait while a topic of higher priority is read ─▶ shed load ─▶ the caller appends
    read:    shed load ─▶ protect it from writers of lower priority ─▶ copies that routers owe ─▶ expiry

Both ask the `LoadShedder` (how much pressure there is) and the `PriorityScheduler` (whose turn it is). The
rules of the log itself (room, caps, idempotency keys, creation of topics) follow in `log.write`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from topics.core import FRESH, topic_not_found
from topics.flow.load_shedder import SHED_FROM_MS, LoadShedder
from topics.flow.priority_scheduler import PriorityScheduler
from topics.log import Engine, Topic


class Caller(Protocol):
    """A client that may have to wait for its admission."""

    @property
    def closed(self) -> bool:
        """Whether the client has gone."""

    def fail_with(self, error: Exception) -> None: ...


Client = TypeVar("Client", bound=Caller)


def _impatient(_: Any) -> bool:
    return False


def _never_wait(_topic: Topic, _go_on: Callable[[], None]) -> bool:
    return False


class Admission:
    def __init__(
        self,
        engine: Engine,
        load_shedder: LoadShedder,
        scheduler: PriorityScheduler,
        pull: Callable[[Topic], None],
        keep: Callable[[Topic, Callable[[], None]], bool] = _never_wait,
    ) -> None:
        """`pull` makes the copies that routers owe to a topic.

        `keep` returns whether a reader has to wait for them, and calls back when they are made.
        """
        self._engine = engine
        self._load_shedder = load_shedder
        self._scheduler = scheduler
        self._pull = pull
        self._keep = keep

    # --- appends ----------------------------------------------------------------------------------------

    def enter(
        self,
        caller: Client,
        name: str,
        size: int,
        work: Callable[[Client], None],
        is_patient: Callable[[Client], bool] = _impatient,
    ) -> None:
        """Call `work`, which appends to the topic of this name: now, or when its turn comes.

        Raises when the caller is refused. A patient caller is not refused because of load, and waits as long
        as it takes. Errors of work that had to wait go to the caller.
        """
        scheduler = self._scheduler
        is_late = self._load_shedder.lag_ms >= SHED_FROM_MS
        if scheduler.active or is_late:
            priority = self.priority_of(name)
            if is_late or scheduler.outranks(priority):
                # Asked for only here, because the answer takes a look at the whole request.
                patient = is_patient(caller)
                refusable = None if patient else name
                resume = partial(self._resume, caller, work, refusable)
                if scheduler.active and scheduler.holds(priority, size, resume, patient=patient):
                    return
                self._refuse_under_pressure(refusable)
        work(caller)

    def _resume(self, caller: Client, work: Callable[[Client], None], refusable: str | None) -> None:
        """Call `work` in its turn. `refusable` is the topic whose priority decides whether it is refused."""
        if caller.closed:
            return
        try:
            self._refuse_under_pressure(refusable)
            work(caller)
        except Exception as error:
            caller.fail_with(error)

    def _refuse_under_pressure(self, name: str | None) -> None:
        """Raise 429, as the last step of load shedding, if the priority is too low for the current lag."""
        if name is not None and self._load_shedder.lag_ms >= SHED_FROM_MS:
            self._load_shedder.check(self.priority_of(name))

    async def enter_in_turn(
        self, name: str, size: int, work: Callable[[], None], *, is_patient: bool = False
    ) -> None:
        """Call `work` when its turn comes, and return then."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def enter(waiting: _WaitingCoroutine) -> None:
            work()
            entered.set_result(None)

        self.enter(_WaitingCoroutine(entered), name, size, enter, lambda _: is_patient)
        await entered

    def priority_of(self, name: str) -> int:
        """Return the priority of appends to this topic."""
        topic = self._engine.find(name)
        if topic is None:
            return 0
        return self._engine.priority_of_writers(topic)

    # --- reads ------------------------------------------------------------------------------------------

    def read_in_turn(self, caller: Client, name: str, size: int, work: Callable[[Client], None]) -> None:
        """Call `work`, which reads: now, or when its turn comes. It has to pass `read`, too."""
        if self._scheduler.active:
            topic = self._engine.find(name)
            priority = 0 if topic is None else self._engine.priority_of(topic)

            def read(caller: Client) -> None:
                self.read_copied(caller, name, size, work)

            resume = partial(self._resume, caller, read, None)
            if self._scheduler.holds(priority, size, resume, patient=False):
                return
        self.read_copied(caller, name, size, work)

    def read_copied(self, caller: Client, name: str, size: int, work: Callable[[Client], None]) -> None:
        """Call `work`, which reads: now, or when a backlog of missing copies has been made."""
        topic = self._engine.find(name)
        # No router feeds most topics: for them no callback is made.
        if (
            topic is None
            or topic.source is None
            or not self._keep(topic, partial(self._resume, caller, work, None))
        ):
            work(caller)

    def read(self, name: str, *, is_noted: bool = True) -> Topic:
        """Return the topic of this name, for a client that reads its records now.

        Claims are not noted: busy workers do not raise the priority of a queue.
        """
        topic = self._engine.find(name)
        if topic is None:
            raise topic_not_found(name)
        if self._load_shedder.lag_ms >= SHED_FROM_MS:
            self._load_shedder.check(self._engine.priority_of(topic))
        if is_noted:
            self.note_read(topic)
        self.bring_up_to_date(topic)
        return topic

    def note_read(self, topic: Topic) -> None:
        """Note a read of this topic: it raises the priority, and writers of other topics make way."""
        self._engine.note_read(topic)
        config = topic.config
        self._scheduler.protect(
            config.priority or (FRESH if config.auto_priority and config.priority is None else 0)
        )

    def bring_up_to_date(self, topic: Topic) -> None:
        """Make the copies that routers owe to the topic, and remove expired records."""
        self._pull(topic)
        if topic.config.ttl_ms:
            self._engine.refresh(topic)


class _WaitingCoroutine:
    """A coroutine that waits for its admission."""

    __slots__ = ("_entered",)

    def __init__(self, entered: asyncio.Future[None]) -> None:
        self._entered = entered

    @property
    def closed(self) -> bool:
        return self._entered.done()

    def fail_with(self, error: Exception) -> None:
        self._entered.set_exception(error)
