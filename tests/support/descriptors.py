"""A few low file descriptors, set aside before tests open many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Py4J listens for callbacks with `select`, which knows no descriptor above 1,023; by the time Spark starts,
# in-process engines of other tests may hold more than that. So a few low ones are set aside.
_LOW_DESCRIPTORS = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]


@contextmanager
def low_descriptors() -> Iterator[None]:
    """What is opened inside gets low numbers."""
    for descriptor in _LOW_DESCRIPTORS:
        os.close(descriptor)
    _LOW_DESCRIPTORS.clear()
    yield
