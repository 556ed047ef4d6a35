"""A server in a thread of this process, to be looked into."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import uvloop

from tests.support import Answer, Wire
from topics.core.settings import Settings
from topics.http.admission.auth import KeyRing
from topics.http.admission.readiness import Readiness
from topics.http.context import Limits
from topics.http.routing import Route
from topics.http.server import Server

TIMEOUT_S = 20.0


class InThread:
    """What has a thread and a loop of its own, from `begin` until somebody asks it to stop."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)
        self.thread.start()
        assert self._started.wait(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self.begin()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._started.set()
        await self._stop.wait()
        await self.finish()

    async def begin(self) -> None:
        raise NotImplementedError

    async def finish(self) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """Close the connections of our own clients."""
        raise NotImplementedError

    def begin_stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        if self.thread.is_alive():
            self.begin_stop()
        self.hang_up()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


class Running(InThread):
    """The HTTP server alone, with routes of the test's own."""

    def __init__(
        self, routes: list[Route], settings: Settings, keys: str, readiness: Readiness, limits: Limits
    ) -> None:
        self.keyring = KeyRing.of(Settings(api_keys=keys))
        self.readiness = readiness
        self.server: Server
        self._arguments = (settings, self.keyring, routes, readiness)
        self._limits = limits
        self._wires: list[Wire] = []
        super().__init__()

    async def begin(self) -> None:
        self.server = Server(*self._arguments, limits=self._limits, drain_s=2.0)
        await self.server.start()

    async def finish(self) -> None:
        await self.server.stop()

    def hang_up(self) -> None:
        for wire in self._wires:
            wire.close()

    def stop(self) -> None:
        # Before it stops: some of them would keep it waiting.
        self.hang_up()
        super().stop()

    @property
    def address(self) -> tuple[str, int]:
        return self.server.address

    def connect(self) -> Wire:
        wire = Wire(self.address)
        self._wires.append(wire)
        return wire

    def request(self, method: str, target: str, *args: Any, **kwargs: Any) -> Answer:
        with contextlib.closing(self.connect()) as wire:
            return wire.request(method, target, *args, **kwargs)

    def inflight(self) -> int:
        return sum(key.inflight for key in self.keyring.keys)
