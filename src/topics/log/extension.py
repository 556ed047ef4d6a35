"""What is layered on the log, as the log sees it."""

from __future__ import annotations

from typing import Any, Protocol

from topics.log.topic import Topic
from topics.storage.frame import Frame


class Extension(Protocol):
    """Something layered on the log that journals facts of its own (routers, queues, cursors, stages)."""

    name: str
    kinds: tuple[int, ...]

    def replay(self, frame: Frame) -> None:
        """Apply a committed frame again."""

    def reload(self, frame: Frame) -> None:
        """Bring back record data of a frame whose effects the snapshot already holds."""

    def dump(self) -> Any:
        """State for the snapshot, as plain MessagePack values."""

    def load(self, state: Any) -> None: ...

    def topic_dropped(self, topic: Topic) -> None: ...
