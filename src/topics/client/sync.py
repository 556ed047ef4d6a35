"""The log for programs that block: `Topics`.

Every method runs an operation that `AsyncTopics` runs as well; what is here is only how to call it and wait.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from topics.client.cursors.cursor import Cursor
from topics.client.encoding import codec_for
from topics.client.operations import managing
from topics.client.operations.choice import OnLoss
from topics.client.operations.queueing import Holding, give_back
from topics.client.operations.settings import LogSettings
from topics.client.operations.watching import Watching, watching
from topics.client.records import Answer, Record
from topics.client.topic import Topic, entries
from topics.client.wire.address import address_of
from topics.client.wire.blocking import Blocking
from topics.client.wire.session import Session, refuse_odd_times

if TYPE_CHECKING:
    from topics.client.jobs import Queue

T = TypeVar("T")
R = TypeVar("R")


class Topics:
    """A server. Threads and forked processes may share it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 10,
        retry_s: float = 30,
    ) -> None:
        refuse_odd_times(timeout_s, retry_s)
        address = address_of(url, api_key)
        self.url = address.url
        self._session = Session(address.url, retry_s)
        self._io = Blocking(address, timeout_s)
        self._holding = Holding()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what is open, and this client. Jobs that were claimed and not handed out are free again."""
        self._io.run(give_back(self._session, self._holding), ends=True)
        self._io.close()

    @overload
    def topic(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> "Topic[Any]": ...
    @overload
    def topic(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "Topic[T]": ...
    def topic(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "Topic[Any]":
        """A topic, of which nothing is asked yet. Its data is JSON, or of this type.

        With settings, the first write makes the topic if it is missing; one that differs is `ConfigDiffers`.
        """
        return Topic(self._io, self._session, name, codec_for(type), dict(settings))

    @overload
    def queue(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> "Queue[Any]": ...
    @overload
    def queue(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "Queue[T]": ...
    def queue(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "Queue[Any]":
        """A queue: the first push or claim makes it if it is missing."""
        from topics.client.jobs import Queue

        return Queue(self._io, self._session, name, codec_for(type), dict(settings), self._holding)

    def list_topics(self, prefix: str = "") -> Iterator[Answer]:
        """All topics whose names begin so, as the server lists them."""
        return entries(self._io, managing.topics(self._session, prefix))

    def routers(self) -> Iterator[Answer]:
        """All routers."""
        return entries(self._io, managing.routers(self._session))

    def watch(
        self,
        cursors: Mapping[str, Cursor | None],
        *,
        idle_s: float | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Iterator[Record[Any]]:
        """Records of several topics as they come, each with its cursor; None begins at the head."""
        return self._watch(watching(self._session, cursors, idle_s, on_loss, ignore_loss))

    def _watch(self, watched: Watching) -> Iterator[Record[Any]]:
        run = self._io.run
        try:
            run(watched.begin(run))
            while (turn := run(watched.next_turn())) is not None:
                reading, batch = turn
                if batch.loss is not None:
                    run(reading.meet(batch.loss))
                for record in batch.records:
                    reading.cursor._hand_out(record)
                    yield record
                    if reading.done(record):
                        run(reading.cursor._flush())
                run(reading.batch_done(batch))
        finally:
            run(watched.close(), ends=True)

    def route(self, name: str, source: str, dest: str, *, tag: str | None = None) -> Answer:
        """Copy every record of `source` to `dest`, or those with such a tag."""
        return self._io.run(managing.route(self._session, name, source, dest, tag))

    def unroute(self, name: str) -> Answer:
        """End a router; what it has copied stays."""
        return self._io.run(managing.unroute(self._session, name))

    def purge(self) -> Answer:
        """Take the bytes of everything that was deleted from the disk, and wait until they are gone."""
        return self._io.run(managing.purge(self._session))

    def metrics(self) -> dict[str, Any]:
        """The server's metrics."""
        return self._io.run(managing.metrics(self._session))

    def info(self) -> dict[str, Any]:
        """Version, whether writes are on, room on the disk."""
        return self._io.run(managing.info(self._session))

    def wait_until_ready(self) -> None:
        """Until the server answers for its data, or `retry_s` is over."""
        self._io.run(managing.ready(self._session))
