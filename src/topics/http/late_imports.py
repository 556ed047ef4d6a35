"""Modules that are only imported when somebody needs them, without making everybody else wait for it."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module


async def load(*modules: str) -> None:
    """Import on a thread what has not been imported yet."""
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: [import_module(name) for name in missing])
