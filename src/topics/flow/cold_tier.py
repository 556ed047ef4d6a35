"""The second tier: old segments move to the cold directory."""

import asyncio
import logging
import os

from topics.log import Engine
from topics.storage import is_full, read_file
from topics.storage.segment import file_name

log = logging.getLogger("topics.upkeep")

# So many topics are looked at before other work has its turn.
STEP_TOPICS = 4096


class ColdTier:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def due(self) -> list[int]:
        """Return the segments that no topic counts among its newest. It looks at a few topics at a time."""
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
        assert store.cold_files is not None
        movable = candidates - keep - store.cold - store.cold_files.refused
        return [n for n in sorted(movable) if not store.is_pinned(n)]

    def copy(self, number: int) -> bool:
        """Copy the file to the cold directory; False if another file has its name there.

        Runs on any thread: sealed files change only by delete flags, which the same upkeep flips.
        """
        store = self._engine.store
        assert store.cold_files is not None
        self._engine.require_home(store.cold_files.path(number))
        copied = store.cold_files.put(number, read_file(store.fs, store.path(number)))
        if not copied:
            log.warning("segment %d stays where it is: see %s", number, store.cold_files.path(number))
        return copied

    def switch(self, number: int) -> None:
        """Let readers use the copy from now on, and remove the original. Runs on the loop."""
        store = self._engine.store
        if store.is_pinned(number):
            return  # It was pinned during the copy: the original stays, and is copied again later.
        original = os.path.join(store.hot_dir, file_name(number))
        self._engine.require_home(original)
        store.close_file(number)
        store.cold.add(number)
        store.fs.remove(original)

    async def move_due(self) -> None:
        """Move the segments that are due. If the cold directory has no room, they stay where they are."""
        for number in await self.due():
            try:
                is_copied = await asyncio.to_thread(self.copy, number)
            except OSError as error:
                if not is_full(error):
                    raise
                log.error("the cold directory has no room: %s; segments stay where they are", error)
                return
            if is_copied:
                self.switch(number)
