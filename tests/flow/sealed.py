"""Records that are to be sealed, and a reader of segment files."""

from __future__ import annotations

import numpy as np

from tests.log.harness import Lab
from topics.flow.pins import SealedView
from topics.storage.segment import DEAD, Segment


def readable(lab: Lab, view: SealedView, floor: int) -> list[int]:
    """What a reader finds who opens the files on its own and follows the view to the letter."""
    found: list[int] = []
    for run in view.runs:
        segment = Segment(lab.disk, run.path)
        entry = segment.entry(run.topic_id, run.base)
        segment.verify(entry)
        alive = segment.flags(entry) != DEAD
        alive[np.frombuffer(run.dead, np.uint32)] = False
        found += [int(index) + run.base for index in np.flatnonzero(alive) if index + run.base >= floor]
        segment.close()
    return found


def tagged(lab: Lab) -> Lab:
    """With ten records in one topic, every second one of them tagged otherwise."""
    for index in range(10):
        lab.write("a", {"data": index, "tag": "odd" if index % 2 else "even"})
    return lab
