"""The names in a data directory: where a server keeps what it writes."""

from __future__ import annotations

import os

from topics.storage import witness


class Directories:
    def __init__(self, root: str) -> None:
        self.root = root
        self.journal = os.path.join(root, "journal")
        self.segments = os.path.join(root, "segments")
        self.snapshots = os.path.join(root, "snapshots")
        # Parts of batches that are not committed yet.
        self.stages = os.path.join(root, "stages")
        self.witness = os.path.join(root, witness.FILE_NAME)
        # Names the directory of the second tier, if there is one.
        self.cold_note = os.path.join(root, ".topics.cold")
        # Held by whoever works in here.
        self.lock = os.path.join(root, ".topics.lock")

    @property
    def entries(self) -> tuple[str, ...]:
        """All there can be."""
        directories = (self.journal, self.segments, self.snapshots, self.stages)
        return (*directories, self.witness, self.cold_note, self.lock)
