"""Reading a topic: requests pages, hands out their records and losses, and moves a cursor.

    request a page  →  hand out the loss at its beginning  →  hand out its records  →  move the cursor

A loss is never passed silently: `handle_loss` raises before any later record is handed out, unless the caller
has said how losses are passed.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar
from urllib.parse import urlencode

import msgspec

from topics.client.cursors import Cursor, MemoryCursor, position_after
from topics.client.encoding import Codec, encode_json
from topics.client.errors import loss_error
from topics.client.operations.pages import Batch, PageReply, page_decoder, records_of
from topics.client.records import AnyLoss, Position, Record, Restarted
from topics.client.wire.requests import Broken, NotConnected, Response, WireRequest
from topics.client.wire.session import Json, Session, decode_or_refuse, state_path, topic_path

T = TypeVar("T")
PAGE_RECORDS = 1000
# A page is in memory as JSON and as objects, which may be twenty times as large, beside the next page.
PAGE_BYTES = 1 << 20
# Below the server's limit of 30 s.
WAIT_S = 25.0
_log = logging.getLogger("topics")


OnLoss: TypeAlias = Callable[[AnyLoss], Any]


class LossArguments(TypedDict, total=False):
    """The ways to pass losses: a function that is called with each, or a reason to ignore them."""

    on_loss: OnLoss | None
    ignore_loss: str | None


class ColumnArguments(LossArguments, total=False):
    """The arguments of `to_arrow`."""

    from_seq: int | None


class Selection(TypedDict, total=False):
    """The records of a topic that are read: where to begin, where to end, and which of those between."""

    from_seq: int | None
    last: int | None
    since: int | datetime | None
    until: int | datetime | None
    tag: str | None
    node: str | list[str] | None
    limit: int | None


class ReadArguments(Selection, LossArguments, total=False):
    """The arguments of `read` and `tail`."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What of a topic is read, and how."""

    from_seq: int | None = None
    last: int | None = None
    since: int | None = None
    until: int | None = None
    tag: str | None = None
    node: str | list[str] | None = None
    limit: int | None = None
    follow: bool = False
    idle_s: float | None = None
    on_loss: OnLoss | None = None
    ignore_loss: str | None = None
    # Losses are items among the records, not errors.
    yields_losses: bool = False
    # Without a cursor and a beginning, begin at the head.
    from_head: bool = False
    # Ask the server to wait for more. A reader of several topics waits for their common stream instead.
    waits: bool = True

    def __post_init__(self) -> None:
        check_ways_past(self.on_loss, self.ignore_loss)
        for name in ("from_seq", "last", "limit"):
            value: Any = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a number, not {value!r}")
            if value < 0:
                raise ValueError(f"{name} is 0 or more, not {value}")
        if self.from_seq is not None and self.last is not None:
            raise TypeError("give from_seq or last, not both")
        if self.idle_s is not None and self.idle_s < 0:
            raise ValueError("idle_s is 0 or more")

    @property
    def nodes(self) -> list[str]:
        return [self.node] if isinstance(self.node, str) else list(self.node or ())


def check_names(allowed: Any, given: Mapping[str, Any]) -> None:
    """Raise `TypeError` unless all names are of `allowed`, as for parameters of a function."""
    for name in given:
        if name not in allowed.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")


def read_options(allowed: Any, given: Mapping[str, Any], **more: Any) -> ReadOptions:
    """The options of a reader, from those that its caller has given."""
    check_names(allowed, given)
    times = {name: milliseconds(given.get(name)) for name in ("since", "until")}
    return ReadOptions(**{**given, **times, **more})


def check_ways_past(on_loss: Any, ignore_loss: Any) -> None:
    """Refuse two ways to pass losses at once, and `ignore_loss` without a reason."""
    if ignore_loss is not None:
        if not isinstance(ignore_loss, str):
            raise TypeError("ignore_loss says why losses do not matter, as a text")
        if not ignore_loss.strip():
            raise ValueError("ignore_loss says why losses do not matter")
        if on_loss is not None:
            raise TypeError("give on_loss or ignore_loss, not both")
    if on_loss is not None and not callable(on_loss):
        raise TypeError("on_loss is a function that gets a Lost or a Restarted")


def milliseconds(when: int | datetime | None) -> int | None:
    """A time as the server writes it: milliseconds since 1970."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError("give times with their zone, such as datetime.now(UTC)")
        return round(when.timestamp() * 1000)
    return when


class IgnoredLosses:
    """The count of losses of a topic that `ignore_loss` has passed."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()  # threads may read the same topic

    async def pass_loss(
        self, session: Session, loss: AnyLoss, on_loss: OnLoss | None, ignore_loss: str | None
    ) -> None:
        """Pass a loss in the way that the caller has chosen; without one, raise it."""
        if on_loss is not None:
            await session.io.call(on_loss, loss)
        elif ignore_loss is not None:
            with self._lock:
                self.count += 1
            _log.warning("%s: ignored (%s)", loss_error(loss), ignore_loss)
        else:
            raise loss_error(loss)


class Reading(Generic[T]):
    """The state of one reader of one topic."""

    def __init__(
        self,
        session: Session,
        topic: str,
        codec: Codec[T],
        cursor: Cursor | None,
        options: ReadOptions,
        ignored: IgnoredLosses,
    ) -> None:
        self._session = session
        self._topic = topic
        self._codec = codec
        if cursor is not None and not isinstance(cursor, Cursor):
            raise TypeError(f"a cursor is a FileCursor, say, and not {cursor!r}")
        self._is_given = cursor is not None
        self.cursor = cursor if cursor is not None else MemoryCursor()
        self._options = options
        self._ignored = ignored
        # The next page begins after this seq, in this incarnation of the topic.
        self._seq = 0
        self._epoch: int | None = None
        self._uses_last = False
        # `read` ends at the head that its first answer shows, however fast others write.
        self._goal: int | None = None
        self._left = options.limit
        self._begun: Any = None
        self._heard = time.monotonic()
        self._pid = os.getpid()
        self._is_over = False
        self._page_end: Position | None = None
        self._known_epoch: int | None = None
        # Whether the last answer reached the head.
        self.is_caught_up = False

    @property
    def memory(self) -> MemoryCursor | None:
        """The cursor if it is a plain `MemoryCursor`, for which nothing is stored."""
        return self.cursor if type(self.cursor) is MemoryCursor else None

    @property
    def position(self) -> tuple[int, int | None]:
        """The seq after which the next page begins, and its epoch."""
        return self._seq, self._epoch

    # --- beginning --------------------------------------------------------------------------------------

    @property
    def yields_losses(self) -> bool:
        return self._options.yields_losses

    async def begin(self) -> None:
        """Load the cursor's position and find out where to begin."""
        await self.cursor._begin(self._topic, self._session)
        position = self.cursor.position
        options = self._options
        if position is not None:
            self._seq, self._epoch = position.seq, position.epoch
        elif options.from_seq is not None:
            self._seq = options.from_seq
        elif options.last is not None:
            self._uses_last = True
        elif options.since is None:
            await self._find_start()

    async def _find_start(self) -> None:
        start = "head" if self._options.from_head and not self._is_given else self.cursor.start
        if start == "first":
            return
        state = await self._session.ask("GET", state_path(self._topic))
        self._epoch = state["epoch"]
        self._seq = state["head_seq"] if start == "head" else state["earliest_seq"] - 1
        # The position of the consumer from now on: later losses are reported.
        self.cursor._advance(Position(self._topic, state["epoch"], self._seq))
        await self.cursor._flush()

    # --- pages ------------------------------------------------------------------------------------------

    async def next_batch(self) -> Batch[T] | None:
        """Return the next records, with a loss in its place; None at the end."""
        if self._is_over or self._left == 0:
            return None
        page = await self._fetch()
        if page.tombstone is not None:
            loss = page.tombstone.loss(self._topic, page.epoch, self._known_epoch)
            if isinstance(loss, Restarted):
                # Start at the first seq of this incarnation. Its own losses follow as another loss.
                self._return_to(position_after(loss))
                return Batch([], loss)
            batch = self._cut(records_of(self._codec, self._topic, page))
            batch.loss = loss
            return batch
        return self._cut(records_of(self._codec, self._topic, page))

    def _cut(self, batch: Batch[T]) -> Batch[T]:
        """Apply `until` and `limit`."""
        until = self._options.until
        if until is not None:
            for index, record in enumerate(batch.records):
                if record.ts >= until:
                    # Not done: another reader with the same cursor continues here.
                    self._is_over, self._page_end = True, None
                    batch = Batch(batch.records[:index])
                    break
        if self._left is not None:
            batch = Batch(
                batch.records[: self._left], None, None if len(batch.records) >= self._left else batch.invalid
            )
            self._left -= len(batch.records)
            if self._left == 0:
                self._page_end = None
        return batch

    async def _fetch(self) -> PageReply:
        begun, self._begun = self._begun, None
        response: Response | None = None
        if begun is not None:
            try:
                response = await self._session.io.finish(begun)
            except (NotConnected, Broken):
                response = None  # sent again below, with retries
        if response is None or response.status != 200:
            response = await self._session.fetch(self._request())
        page = decode_or_refuse(page_decoder(self._codec), response)
        await self._look_ahead(page)
        return page

    async def _look_ahead(self, page: PageReply) -> None:
        """Note where the next page begins, and request it while this one is handled."""
        if page.records or page.tombstone is not None or not page.caught_up:
            self._heard = time.monotonic()
        self._known_epoch = self._epoch
        is_cut_by_server = self._uses_last and self._options.until is not None
        self._seq, self._epoch, self._uses_last = page.next_from_seq, page.epoch, False
        # Records that the server has left out because of `until` are not done.
        self._page_end = None if is_cut_by_server else Position(self._topic, page.epoch, page.next_from_seq)
        self.is_caught_up = page.caught_up
        if self._goal is None:
            self._goal = page.head_seq
        if self._ends_with(page):
            self._is_over = True
        elif not page.caught_up and page.tombstone is None and self._left is None:
            try:
                self._begun = await self._session.io.begin(self._request())
            except (NotConnected, Broken):
                self._begun = None

    def _ends_with(self, page: PageReply) -> bool:
        if not self._options.follow:
            return page.caught_up or page.next_from_seq >= (self._goal or 0)
        return page.caught_up and not page.records and self._silence_left() == 0

    def _return_to(self, position: Position) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._session.io.abandon(begun)
        self._seq, self._page_end, self._is_over, self._goal = position.seq, None, False, None

    def _silence_left(self) -> float:
        """The time without records after which the reader ends."""
        left = WAIT_S
        if self._options.idle_s is not None:
            left = min(left, self._heard + self._options.idle_s - time.monotonic())
        if self._options.until is not None:
            left = min(left, self._options.until / 1000 - time.time())
        return max(left, 0.0)

    # --- requests ---------------------------------------------------------------------------------------

    def _request(self) -> WireRequest:
        options = self._options
        wait_s = self._silence_left() if options.follow and options.waits else 0.0
        if options.tag is None and options.since is None and not self._uses_last:
            return self._diff(wait_s)
        query: list[tuple[str, Any]] = [("limit", self._page_limit()), ("include_tags", "true")]
        query.append(("last", options.last) if self._uses_last else ("from_seq", self._seq))
        if self._uses_last and options.until is not None:
            query.append(("until", options.until))  # the last ones before it
        if self._epoch is not None and not self._uses_last:
            query.append(("epoch", self._epoch))
        if options.tag is not None:
            query.append(("tag", options.tag))
        if options.since is not None:
            query.append(("since", options.since))
        query += [("node", node) for node in options.nodes]
        if wait_s:
            query.append(("wait_ms", int(wait_s * 1000)))
        target = f"{topic_path(self._topic)}/records?{urlencode(query)}"
        return WireRequest(method="GET", target=target, wait_s=wait_s)

    def _diff(self, wait_s: float) -> WireRequest:
        body: Json = {"from_seq": self._seq, "limit": self._page_limit(), "include_tags": True}
        body["max_batch_bytes"] = PAGE_BYTES
        if self._epoch is not None:
            body["epoch"] = self._epoch
        if self._options.node is not None:
            body["node"] = self._options.nodes
        if wait_s:
            body["wait_ms"] = int(wait_s * 1000)
        target = topic_path(self._topic) + "/diff"
        return WireRequest(method="POST", target=target, body=encode_json(body), wait_s=wait_s)

    def _page_limit(self) -> int:
        return PAGE_RECORDS if self._left is None else max(1, min(PAGE_RECORDS, self._left))

    # --- the cursor -------------------------------------------------------------------------------------

    async def handle_loss(self, loss: AnyLoss) -> None:
        """Pass a loss in the way that the options say, or raise it."""
        options = self._options
        if not options.yields_losses:
            await self._ignored.pass_loss(self._session, loss, options.on_loss, options.ignore_loss)
        self.cursor._advance(position_after(loss))
        await self.cursor._flush()

    def done(self, record: Record[T]) -> bool:
        """A record is done. Returns whether the position is to be stored now."""
        return self.cursor._advance(Position(record.topic, record.epoch, record.seq))

    async def batch_done(self, batch: Batch[T]) -> None:
        """The whole page is done, with the records that the server left out of it."""
        if batch.invalid is not None:
            raise batch.invalid
        position, self._page_end = self._page_end, None
        if position is not None and position != self.cursor.position and self.cursor._advance(position):
            await self.cursor._flush()

    async def close(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._session.io.abandon(begun)
        self.cursor._hand_out(None)
        if self._pid == os.getpid():  # in a forked process, the parent may have moved on
            await self.cursor._flush()
