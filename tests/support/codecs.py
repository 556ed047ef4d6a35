"""Run tests with both codecs: the native one, if it is compiled, and the one in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from topics import codec
from topics.codec import frames, mistakes, pages, python

FUNCTIONS = (
    "alive",
    "decode",
    "encode",
    "explain",
    "find_frames",
    "frame_parts",
    "from_columns",
    "page",
)


def _native() -> Any:
    try:
        from topics.codec import native
    except ImportError:
        return None
    return native


PYTHON: Any = SimpleNamespace(
    alive=pages.alive,
    decode=python.decode,
    encode=python.encode,
    explain=mistakes.explain,
    find_frames=frames.find_frames,
    frame_parts=frames.frame_parts,
    from_columns=python.from_columns,
    page=pages.page,
)
NATIVE: Any = _native()
CODECS: dict[str, Any] = {"python": PYTHON} if NATIVE is None else {"python": PYTHON, "native": NATIVE}


@contextmanager
def using_codec(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "NAME", name)
        for function in FUNCTIONS:
            patch.setattr(codec, function, getattr(CODECS[name], function))
        yield


@pytest.fixture(scope="module", params=CODECS)
def both_codecs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module with each codec."""
    with using_codec(request.param):
        yield
