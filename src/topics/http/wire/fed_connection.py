"""A connection that is fed with records or jobs, and left alone while its client does not read."""

import asyncio
from collections.abc import Collection

from topics.flow.watch.fanout import Fanout
from topics.flow.watch.subscription import Delivery, Subscription
from topics.http.wire.stream import Stream, Upgraded

# A client that takes nothing for this long is told so and cut off.
PATIENCE_S = 30.0
# A socket whose client says nothing for so long is asked whether it is there, and has as long to answer.
PING_S = 20.0
# How long a client may take to read our last words before the connection is torn down.
FAREWELL_S = 5.0
# The same for one that was cut off: it did not read before, and shall find out why when it does.
EXPLANATION_S = 15.0


class FedConnection:
    """What all of them have in common: pressure, the way back from it, and the end."""

    __slots__ = ("_farewell", "_held", "_patience_s", "_waiting", "stalled")

    def __init__(self, held: Stream | Upgraded, patience_s: float | None) -> None:
        """A client that takes nothing for `patience_s` is given up; None waits for ever."""
        self._held = held
        self._patience_s = patience_s
        # Only a client that does not keep up costs a task.
        self._waiting: asyncio.Task[None] | None = None
        self._farewell: asyncio.TimerHandle | None = None
        # Nothing more is to be written now.
        self.stalled = False

    def give_up(self) -> None:
        """The client has not read for too long."""

    def on_pressure(self) -> None:
        """The client does not keep up."""

    def on_relief(self) -> None:
        """It has caught up with what was sent."""

    def release(self) -> None:
        """Nothing more is delivered, and nothing of it stays with the topics."""
        self.stalled = True

    def write(self, data: bytes) -> None:
        held = self._held
        held.write(data)
        if held.choked and not self.stalled:
            self.stalled = True
            self.on_pressure()
            self._waiting = asyncio.get_running_loop().create_task(self._wait_for_room())

    async def _wait_for_room(self) -> None:
        held = self._held
        while held.choked:
            before = held.buffered()
            try:
                await asyncio.wait_for(held.drain(), self._patience_s)
            except TimeoutError:
                if held.buffered() >= before:
                    self.give_up()
                    self._abort_in(EXPLANATION_S)
                    return
        self._waiting = None
        if not held.closed:
            self.stalled = False
            self.on_relief()

    def hang_up(self) -> None:
        """Close once everything is sent, or after a while without that."""
        self.release()
        self._held.close()
        self._abort_in(FAREWELL_S)

    def abort(self) -> None:
        """Close without another word."""
        self._held.abort()

    def _abort_in(self, seconds: float) -> None:
        self._cancel_farewell()
        self._farewell = asyncio.get_running_loop().call_later(seconds, self._held.abort)

    def _cancel_farewell(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    def on_closed(self) -> None:
        """The connection has ended, by our doing or the client's."""
        self.release()
        self._cancel_farewell()


class FedWatcher(FedConnection):
    """What a watch stream and a WebSocket have in common: subscriptions."""

    __slots__ = ("_fanout",)

    def __init__(self, fanout: Fanout, held: Stream | Upgraded, patience_s: float | None) -> None:
        super().__init__(held, patience_s)
        self._fanout = fanout

    @property
    def subscriptions(self) -> Collection[Subscription]:
        raise NotImplementedError

    def deliver(self, subscription: Subscription, delivery: Delivery) -> None:
        raise NotImplementedError

    def ended(self, subscription: Subscription) -> None:
        raise NotImplementedError

    def on_relief(self) -> None:
        self._fanout.resume(self.subscriptions)

    def release(self) -> None:
        super().release()
        for subscription in tuple(self.subscriptions):
            self._fanout.detach(subscription)
