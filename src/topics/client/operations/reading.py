"""Reading a topic: pages of answers become records and losses, and a cursor follows.

    ask for a page  →  loss in front?  →  records, one by one  →  the cursor moves when one is done

A gap is never passed by itself: `meet` raises it before anything behind it is handed out, unless the caller
has said what is to become of losses.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from topics.client.cursors.cursor import Cursor, MemoryCursor, behind
from topics.client.encoding import Codec, encode_json
from topics.client.errors import loss_error
from topics.client.operations.choice import Choice
from topics.client.operations.pages import Batch, Page, page_decoder, records_of
from topics.client.records import AnyLoss, Position, Record, Restarted
from topics.client.wire.effects import (
    Abandon,
    Begin,
    Broken,
    Call,
    Finish,
    NotConnected,
    Operation,
    Request,
    Response,
)
from topics.client.wire.session import Json, Session, topic_path, understood

T = TypeVar("T")
PAGE_RECORDS = 1000
# A page is in memory as JSON and as objects, which may be twenty times as large, and the next one is coming.
PAGE_BYTES = 1 << 20
# Below the server's own ceiling of 30 s, so that an idle connection is heard of now and then.
WAIT_S = 25.0
_log = logging.getLogger("topics")


class Ignored:
    """How many losses of a topic were passed with `ignore_loss`."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()  # threads may read the same topic

    def note(self, loss: AnyLoss, why: str) -> None:
        with self._lock:
            self.count += 1
        _log.warning("%s: ignored (%s)", loss_error(loss), why)


class Reading(Generic[T]):
    """One reader's way through one topic."""

    def __init__(
        self,
        session: Session,
        topic: str,
        codec: Codec[T],
        cursor: Cursor | None,
        choice: Choice,
        ignored: Ignored,
    ) -> None:
        self._session = session
        self._topic = topic
        self._codec = codec
        if cursor is not None and not isinstance(cursor, Cursor):
            raise TypeError(f"a cursor is a FileCursor, say, and not {cursor!r}")
        self._is_given = cursor is not None
        self.cursor = cursor if cursor is not None else MemoryCursor()
        self._choice = choice
        self._ignored = ignored
        # Behind which seq the next page begins, and in which life of the topic.
        self._seq = 0
        self._epoch: int | None = None
        self._uses_last = False
        # read() ends at the head of its first answer, however quickly others write.
        self._goal: int | None = None
        self._left = choice.limit
        self._begun: Any = None
        self._heard = time.monotonic()
        self._pid = os.getpid()
        self._is_over = False
        self._behind_page: Position | None = None
        self._known_epoch: int | None = None
        # Whether the last answer reached the head.
        self.is_level = False

    @property
    def memory(self) -> MemoryCursor | None:
        """The cursor, where nothing has to be stored."""
        return self.cursor if type(self.cursor) is MemoryCursor else None

    @property
    def position(self) -> tuple[int, int | None]:
        """Behind which seq the next page begins, and of which epoch that is."""
        return self._seq, self._epoch

    # --- beginning --------------------------------------------------------------------------------------

    def begin(self, run: Callable[[Operation[Any]], Any] | None = None) -> Operation[None]:
        yield from self.cursor._begin(self._topic, self._session, run)
        position = self.cursor.position
        choice = self._choice
        if position is not None:
            self._seq, self._epoch = position.seq, position.epoch
        elif choice.from_seq is not None:
            self._seq = choice.from_seq
        elif choice.last is not None:
            self._uses_last = True
        elif choice.since is None:
            yield from self._find_start()

    def _find_start(self) -> Operation[None]:
        start = "head" if self._choice.from_head and not self._is_given else self.cursor.start
        if start == "first":
            return
        state = yield from self._session.ask("GET", topic_path(self._topic) + "?touch=false")
        self._epoch = state["epoch"]
        self._seq = state["head_seq"] if start == "head" else state["earliest_seq"] - 1
        # From now on this is where the consumer stands: what is lost behind it is owed.
        self.cursor._advance(Position(self._topic, state["epoch"], self._seq))
        yield from self.cursor._flush()

    # --- pages ------------------------------------------------------------------------------------------

    def next_batch(self) -> Operation[Batch[T] | None]:
        """What comes next, with a loss in its place; None at the end."""
        if self._is_over or self._left == 0:
            return None
        page = yield from self._fetch()
        if page.tombstone is not None:
            loss = page.tombstone.loss(self._topic, page.epoch, self._known_epoch)
            if isinstance(loss, Restarted):
                # This life from its very beginning: what it has lost already is a loss of its own.
                yield from self._return_to(behind(loss))
                return Batch([], loss)
            batch = self._cut(records_of(self._codec, self._topic, page))
            batch.loss = loss
            return batch
        return self._cut(records_of(self._codec, self._topic, page))

    def _cut(self, batch: Batch[T]) -> Batch[T]:
        """No more than was asked for."""
        until = self._choice.until
        if until is not None:
            for index, record in enumerate(batch.records):
                if record.ts >= until:
                    # Not passed over: another reader of the same cursor goes on here.
                    self._is_over, self._behind_page = True, None
                    batch = Batch(batch.records[:index])
                    break
        if self._left is not None:
            batch = Batch(
                batch.records[: self._left], None, None if len(batch.records) >= self._left else batch.misfit
            )
            self._left -= len(batch.records)
            if self._left == 0:
                self._behind_page = None
        return batch

    def _fetch(self) -> Operation[Page]:
        begun, self._begun = self._begun, None
        response: Response | None = None
        if begun is not None:
            try:
                response = yield Finish(begun)
            except (NotConnected, Broken):
                response = None  # asked again below, patiently
        if response is None or response.status != 200:
            response = yield from self._session.fetch(self._request())
        page = understood(page_decoder(self._codec), response)
        yield from self._look_ahead(page)
        return page

    def _look_ahead(self, page: Page) -> Operation[None]:
        """Note where the next page begins, and ask for it already while this one is looked at."""
        if page.records or page.tombstone is not None or not page.caught_up:
            self._heard = time.monotonic()
        self._known_epoch = self._epoch
        self._seq, self._epoch, self._uses_last = page.next_from_seq, page.epoch, False
        self._behind_page = Position(self._topic, page.epoch, page.next_from_seq)
        self.is_level = page.caught_up
        if self._goal is None:
            self._goal = page.head_seq
        if self._ends_with(page):
            self._is_over = True
        elif not page.caught_up and page.tombstone is None and self._left is None:
            try:
                self._begun = yield Begin(self._request())
            except (NotConnected, Broken):
                self._begun = None

    def _ends_with(self, page: Page) -> bool:
        if not self._choice.follow:
            return page.caught_up or page.next_from_seq >= (self._goal or 0)
        return page.caught_up and not page.records and self._silence_left() == 0

    def _return_to(self, position: Position) -> Operation[None]:
        begun, self._begun = self._begun, None
        if begun is not None:
            yield Abandon(begun)
        self._seq, self._behind_page, self._is_over, self._goal = position.seq, None, False, None

    def _silence_left(self) -> float:
        """How long there may still be nothing before the reader ends."""
        left = WAIT_S
        if self._choice.idle_s is not None:
            left = min(left, self._heard + self._choice.idle_s - time.monotonic())
        if self._choice.until is not None:
            left = min(left, self._choice.until / 1000 - time.time())
        return max(left, 0.0)

    # --- requests ---------------------------------------------------------------------------------------

    def _request(self) -> Request:
        choice = self._choice
        wait_s = self._silence_left() if choice.follow and choice.waits else 0.0
        if choice.tag is None and choice.since is None and not self._uses_last:
            return self._diff(wait_s)
        query: list[tuple[str, Any]] = [("limit", self._page_limit()), ("include_tags", "true")]
        query.append(("last", choice.last) if self._uses_last else ("from_seq", self._seq))
        if self._epoch is not None and not self._uses_last:
            query.append(("epoch", self._epoch))
        if choice.tag is not None:
            query.append(("tag", choice.tag))
        if choice.since is not None:
            query.append(("since", choice.since))
        query += [("node", node) for node in choice.nodes]
        if wait_s:
            query.append(("wait_ms", int(wait_s * 1000)))
        target = f"{topic_path(self._topic)}/records?{urlencode(query)}"
        return Request(method="GET", target=target, wait_s=wait_s)

    def _diff(self, wait_s: float) -> Request:
        body: Json = {"from_seq": self._seq, "limit": self._page_limit(), "include_tags": True}
        body["max_batch_bytes"] = PAGE_BYTES
        if self._epoch is not None:
            body["epoch"] = self._epoch
        if self._choice.node is not None:
            body["node"] = self._choice.nodes
        if wait_s:
            body["wait_ms"] = int(wait_s * 1000)
        target = topic_path(self._topic) + "/diff"
        return Request(method="POST", target=target, body=encode_json(body), wait_s=wait_s)

    def _page_limit(self) -> int:
        return PAGE_RECORDS if self._left is None else max(1, min(PAGE_RECORDS, self._left))

    # --- the cursor -------------------------------------------------------------------------------------

    def meet(self, loss: AnyLoss) -> Operation[None]:
        """A loss, where only records are wanted."""
        choice = self._choice
        if choice.on_loss is not None:
            yield Call(choice.on_loss, (loss,))
        elif choice.ignore_loss is not None:
            self._ignored.note(loss, choice.ignore_loss)
        else:
            raise loss_error(loss)
        yield from self.pass_loss(loss)

    def pass_loss(self, loss: AnyLoss) -> Operation[None]:
        self.cursor._advance(behind(loss))
        yield from self.cursor._flush()

    def done(self, record: Record[T]) -> bool:
        """The next one is asked for; whether the position is to be stored now."""
        return self.cursor._advance(Position(record.topic, record.epoch, record.seq))

    def batch_done(self, batch: Batch[T]) -> Operation[None]:
        """All of it is done, and what the page left out counts as read."""
        if batch.misfit is not None:
            raise batch.misfit
        position, self._behind_page = self._behind_page, None
        if position is not None and position != self.cursor.position and self.cursor._advance(position):
            yield from self.cursor._flush()

    def close(self) -> Operation[None]:
        begun, self._begun = self._begun, None
        if begun is not None:
            yield Abandon(begun)
        self.cursor._hand_out(None)
        if self._pid == os.getpid():  # or else a forked process ends, whose parent may be further on
            yield from self.cursor._flush()
