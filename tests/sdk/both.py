"""One test for both surfaces: the blocking one is dressed so that it can be awaited; it runs on threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tests.support.sources import ROOT
from topics import AsyncTopics, Topics

# No I/O: plain on both surfaces. What they give is dressed in turn.
PLAIN = {"topic", "queue", "writer", "worker"}
ITERATORS = {"read", "tail", "items", "list_topics", "routers", "ledger", "cursors", "watch"}
_END = object()


class Dressed:
    """A client, topic, queue, writer, worker or job of the blocking surface."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value) or name == "stop":
            return value
        if name in PLAIN:
            return lambda *args, **more: Dressed(value(*args, **_undressed(more)))
        if name in ITERATORS:
            return lambda *args, **more: _iterate(value(*args, **more))
        if name == "job":
            return lambda **more: _enter(value(**more))

        async def call(*args: Any, **more: Any) -> Any:
            result = await asyncio.to_thread(value, *args, **more)
            return [Dressed(job) for job in result] if name == "claim" else result

        return call

    def worker(self, handler: Any, **more: Any) -> Dressed:
        """Handlers are coroutine functions in the tests; each thread runs its own."""
        return Dressed(self.inner.worker(lambda job: asyncio.run(handler(Dressed(job))), **more))

    async def __aenter__(self) -> Dressed:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await asyncio.to_thread(self.inner.__exit__, *error)


def _undressed(more: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "inner", value) for name, value in more.items()}


async def _iterate(inner: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        while (item := await asyncio.to_thread(next, inner, _END)) is not _END:
            yield item
    finally:
        inner.close()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def _enter(inner: Any) -> AsyncIterator[Any]:
    job = await asyncio.to_thread(inner.__enter__)
    try:
        yield Dressed(job)
    except BaseException as error:
        if not await asyncio.to_thread(inner.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(inner.__exit__, None, None, None)


def connect(surface: str, url: str, **more: Any) -> Any:
    return AsyncTopics(url, **more) if surface == "asyncio" else Dressed(Topics(url, **more))


def run_script(script: str, *arguments: str) -> str:
    """What a program of its own prints: forks are tried there."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()
