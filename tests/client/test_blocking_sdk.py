"""The blocking modules are what `scripts/make_blocking_sdk.py` makes of the asyncio ones."""

from __future__ import annotations

import ast

from scripts.make_blocking_sdk import blocking_text, generated


def test_the_generated_modules_are_current() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, f"run scripts/make_blocking_sdk.py: {path.name} is not current"


def test_what_exists_on_asyncio_only_is_left_out() -> None:
    source = '''
from topics.client.wire.async_io import IS_ASYNC, AsyncIO

class AsyncThing:
    """Leave the `async with` block."""

    async def call(self, io: AsyncIO) -> int:
        if IS_ASYNC:
            return await self._aio_call()
        async with self.lock:
            return await io.run(1)  # an AsyncThing does

    async def _aio_call(self) -> int:
        return 2
'''
    made = blocking_text(source)
    assert "async" not in made.lower().replace("asyncthing", "")
    assert "await" not in made
    assert "_aio_" not in made
    assert "from topics.client.wire.blocking import Blocking\n" in made
    assert "`with` block" in made
    ast.parse(made)
