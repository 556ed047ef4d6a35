"""Modules that are only imported for the first request that needs them, while other requests go on."""

import asyncio
import sys
from importlib import import_module


async def load(*modules: str) -> None:
    """Import on a thread what has not been imported yet."""
    missing = [name for name in modules if not _is_whole(name)]
    if missing:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: [import_module(name) for name in missing])


def _is_whole(name: str) -> bool:
    """A module is listed before it is complete, and using it then waits for the thread that imports it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
