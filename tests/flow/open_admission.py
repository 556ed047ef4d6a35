"""An admission that lets everything pass, for tests of other parts."""

from __future__ import annotations

from topics.flow.admission import Admission
from topics.flow.load_shedder import LoadShedder
from topics.flow.priority_scheduler import PriorityScheduler
from topics.log.engine import Engine


def open_admission(engine: Engine, load_shedder: LoadShedder | None = None) -> Admission:
    """They close as soon as the load_shedder says so."""
    load_shedder = load_shedder or LoadShedder()
    return Admission(engine, load_shedder, PriorityScheduler(load_shedder), lambda topic: None)
