"""Which stages are open: their files, whose they are, and when something was last heard of them."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from topics.core import limit_reached
from topics.flow.stages.spool import part_path, stage_key
from topics.storage import Filesystem

# A stage of which nothing was heard for so long is given up.
IDLE_MS = 3_600_000
# Of an owner, over all of its stages: each is a file, and a name in memory.
MAX_PARTS = 100_000


@dataclass(slots=True)
class _Stage:
    owner: str
    heard: int
    files: set[str] = field(default_factory=set)


class OpenStages:
    def __init__(self, fs: Filesystem, directory: str, now: Callable[[], int]) -> None:
        self._fs = fs
        self._directory = directory
        self._now = now
        self._stages: dict[str, _Stage] = {}
        # Files of each owner, by the digest that they begin with.
        self._count: Counter[str] = Counter()

    @property
    def stages(self) -> int:
        return len(self._stages)

    @property
    def parts(self) -> int:
        return self._count.total()

    def find_again(self) -> None:
        """What a former process has left counts as heard of now."""
        for name in self._fs.list(self._directory):
            self._note(name.rpartition("-")[0], name)

    def admit(self, owner: str, stage: str, part: str) -> str:
        """Where a part goes; refused when its owner has too many."""
        key = stage_key(owner, stage)
        path = part_path(self._directory, key, part)
        known = self._stages.get(key)
        is_new = known is None or os.path.basename(path) not in known.files
        if is_new and self._count[_owner_of(key)] >= MAX_PARTS:
            raise limit_reached("max_stage_parts", MAX_PARTS)
        self._note(key, os.path.basename(path))
        return path

    def arrived(self, path: str) -> None:
        """A part was written, or could not be."""
        name = os.path.basename(path)
        key = name.rpartition("-")[0]
        if self._fs.exists(path):
            self._note(key, name)
        else:
            self._forget(key, {name})

    def heard_of(self, owner: str, stage: str) -> None:
        known = self._stages.get(stage_key(owner, stage))
        if known is not None:
            known.heard = self._now()

    def paths(self, owner: str, stage: str, parts: list[str]) -> list[str]:
        key = stage_key(owner, stage)
        return [part_path(self._directory, key, part) for part in parts]

    def idle(self) -> list[str]:
        """Keys of the stages of which nothing was heard for long."""
        now = self._now()
        return [key for key, stage in self._stages.items() if now - stage.heard >= IDLE_MS]

    def spent(self, owner: str, stage: str, names: set[str]) -> None:
        """These files of a stage are about to be removed."""
        self._forget(stage_key(owner, stage), names)

    def close(self, keys: list[str]) -> None:
        """The files of these stages are about to be removed. One that still comes opens its stage again."""
        for key in keys:
            if key in self._stages:
                self._forget(key, self._stages[key].files)

    def files_of(self, keys: list[str]) -> list[str]:
        """On any thread: all that is there of these stages, half-written files included."""
        wanted = set(keys)
        names = self._fs.list(self._directory)
        return [os.path.join(self._directory, n) for n in names if n.rpartition("-")[0] in wanted]

    def _note(self, key: str, name: str) -> None:
        owner = _owner_of(key)
        stage = self._stages.setdefault(key, _Stage(owner, 0))
        stage.heard = self._now()
        if name not in stage.files:
            stage.files.add(name)
            self._count[owner] += 1

    def _forget(self, key: str, names: set[str]) -> None:
        stage = self._stages.get(key)
        if stage is None:
            return
        left = stage.files - names
        self._count[stage.owner] -= len(stage.files) - len(left)
        stage.files = left
        if not left:
            del self._stages[key]


def _owner_of(key: str) -> str:
    """Empty for keys without prefixes."""
    return key.rpartition("-")[0]
