"""What is layered on the log, as the log sees it."""

from typing import Any

from topics.log.topic import Topic
from topics.storage import Frame


class Layer:
    """What is layered on one topic, `topic.extension`: the leases and losses of a queue."""

    def note_deleted(self, first: int, last: int, count: int) -> None:
        """Of these seqs, whose records cannot be found any more, so many had been deleted before."""


class Extension:
    """Something layered on the log that journals facts of its own (routers, queues, cursors, stages).

    It is registered with the engine before recovery: a snapshot or a frame for which no extension answers
    stops the start, because the snapshots that follow would be without it.
    """

    # The key of its state in snapshots, and the kinds of frames that are its own. Both are on disk.
    name: str
    kinds: tuple[int, ...]

    def dump(self) -> Any:
        """State for the snapshot, as plain MessagePack values; None where there is nothing to keep."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        raise NotImplementedError

    def replay(self, frame: Frame) -> None:
        """Apply a committed frame again."""
        raise NotImplementedError

    def reload(self, frame: Frame) -> None:
        """Bring back record data of a frame whose effects the snapshot already holds, if it has any."""

    def follows(self, topic_id: int) -> bool:
        """Whether recovery shows it the Append frames of this topic, whatever has become of it."""
        return False

    def append_read(self, frame: Frame) -> None:
        """Recovery has read this Append frame."""

    def start(self) -> None:
        """Everything was read, and work of its own may begin. On the loop, where there is one."""

    def topic_shown(self, topic: Topic) -> None:
        """A topic is there to be seen for the first time, created or recovered."""

    def topic_dropped(self, topic: Topic) -> None:
        """A topic is gone, with all that was in it."""
