"""Doors that stand open: for tests that are about what lies behind them."""

from __future__ import annotations

from topics.flow.doors import Doors
from topics.flow.governor import Governor
from topics.flow.pacing import Pacer
from topics.log.engine import Engine


def open_doors(engine: Engine, governor: Governor | None = None) -> Doors:
    """They close as soon as the governor says so."""
    governor = governor or Governor()
    return Doors(engine, governor, Pacer(governor), lambda topic: None)
