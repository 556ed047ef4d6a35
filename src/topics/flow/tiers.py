"""The second tier: old sealed segments move to another directory; reads go on unchanged, only slower.

A segment is copied, synced and renamed into place before the original goes, so a crash leaves one copy or
two, never none; with two, the original counts.
"""

import asyncio
import os

from topics.log import Engine
from topics.storage import read_file, write_file_atomically
from topics.storage.segment import file_name

STEP_TOPICS = 4096


class Tiers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def due(self) -> list[int]:
        """Segments that no topic counts among its newest. Topics are asked a few at a time."""
        store, settings = self._engine.store, self._engine.settings
        if store.cold_dir is None:
            return []
        keep: set[int] = set()
        candidates: set[int] = set()
        for at, topic in enumerate([*self._engine.by_id.values()]):
            if at % STEP_TOPICS == STEP_TOPICS - 1:
                await asyncio.sleep(0)
            kept_bytes = kept = 0
            for run in reversed(topic.runs):
                if run.sealed is None:
                    continue
                kept_bytes += run.live_bytes
                kept += 1
                recent = kept <= settings.hot_retain_segments or kept_bytes <= settings.hot_retain_bytes
                (keep if recent else candidates).add(run.sealed.segment)
        return [n for n in sorted(candidates - keep - store.cold) if not store.is_pinned(n)]

    def copy(self, number: int) -> None:
        """Any thread: sealed files change only by delete flags, and those are flipped by the same upkeep."""
        store = self._engine.store
        assert store.cold_dir is not None
        content = read_file(store.fs, store.path(number))
        write_file_atomically(store.fs, store.cold_dir, file_name(number), [content])

    def switch(self, number: int) -> None:
        """On the loop: readers find the copy from now on."""
        store = self._engine.store
        if store.is_pinned(number):
            return  # pinned while it was copied; the original counts, and will be copied again
        store.close_file(number)
        store.cold.add(number)
        store.fs.remove(os.path.join(store.hot_dir, file_name(number)))
