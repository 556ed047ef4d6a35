"""Tests that run twice: with the accelerator, where it is compiled, and without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from topics.values import accelerator

NATIVE = accelerator.native
WAYS = {"in python": None} if NATIVE is None else {"in python": None, "accelerated": NATIVE}


@contextmanager
def using(native: Any) -> Iterator[None]:
    before, accelerator.native = accelerator.native, native
    try:
        yield
    finally:
        accelerator.native = before


@pytest.fixture(scope="module", params=WAYS.values(), ids=list(WAYS))
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use it in a module whose tests should hold either way."""
    with using(request.param):
        yield
