"""What the garbage collector has walked for long is set aside, and it is not asked about it again."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

import pytest

from topics.engine import settled_objects
from topics.engine.settled_objects import SettledObjects


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    """Servers that other tests run in this process look at their walks as well."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.callbacks[:] = others


def test_a_long_walk_is_the_last_one_through_what_it_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = SettledObjects()
    settled.start()
    try:
        for long_s, generation, is_set_aside in ((math.inf, 2, False), (0.0, 1, False), (0.0, 2, True)):
            monkeypatch.setattr(settled_objects, "LONG_WALK_S", long_s)
            gc.collect(generation)
            assert (gc.get_freeze_count() > 0) == is_set_aside
    finally:
        settled.stop()
    gc.unfreeze()
    gc.collect()
    assert gc.get_freeze_count() == 0
