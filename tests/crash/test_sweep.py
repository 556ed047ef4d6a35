"""Every operation, stopped behind every change it makes to the disk, by a kill and by power losses.

By default a part of the luck and of the crashes during recovery is tried, the same part every time; the slow
tests try the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crash.operations import OPERATIONS
from tests.crash.sweep import Point, check, check_recovery, points

# Crash points of a long operation from which the recovery is stopped, too.
RECOVERIES = 2


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery reports what it finds, thousands of times here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def sample(every: list[Point], count: int) -> list[Point]:
    """Spread over the whole, the last one among them."""
    step = max(len(every) // count, 1)
    return every[::-step][:count]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_behind_every_change(operation: str) -> None:
    for point in points(operation, lucks=2):
        try:
            check(point)
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_behind_every_change_of_the_recovery(operation: str) -> None:
    for point in sample(list(points(operation, lucks=1)), RECOVERIES):
        try:
            assert check_recovery(point, lucks=1) > 0
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_more_luck(operation: str) -> None:
    for point in points(operation, lucks=25):
        check(point)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_recovery(operation: str) -> None:
    for point in points(operation, lucks=2):
        check_recovery(point, lucks=2)
