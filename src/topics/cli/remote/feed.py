"""What a topic has to tell, in order: records, and losses in their places among them.

A feed asks for pages, the next of which begins where the one before it ended. It knows the life of the topic
that its position belongs to, so that no record of another life is taken for what follows.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlencode

import msgspec

from topics.cli.remote.server import Server, topic_path
from topics.client import Refused
from topics.client.wire.session import decode_or_refuse

# The most records that come in one answer.
MOST = 1000
# How long one question waits for a record. Shorter than what servers and proxies cut off.
LONG_POLL_MS = 10_000
# How often a topic that is gone is looked for.
GONE_PAUSE_S = 1.0


_ABSENT = msgspec.Raw()


class _Record(msgspec.Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag", "node": "$node"}):
    seq: int
    ts: int
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = _ABSENT


class _Tombstone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str
    previous_epoch: int | None = None


class _Page(msgspec.Struct):
    records: list[_Record]
    next_from_seq: int
    caught_up: bool
    epoch: int
    tombstone: _Tombstone | None = None

    @property
    def is_of_another_life(self) -> bool:
        return self.tombstone is not None and self.tombstone.reason == "recreated"


class Record(msgspec.Struct, omit_defaults=True):
    """As it is printed. Its data is never decoded on the way: what was written comes out."""

    topic: str
    epoch: int
    seq: int
    ts: int
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw | None = None


class Gap(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class Lost(msgspec.Struct):
    topic: str
    epoch: int
    lost: Gap

    def told(self) -> str:
        return f"{self.topic}: lost {self.lost.gap_from}-{self.lost.gap_to} ({self.lost.reason})"


class Formerly(msgspec.Struct):
    previous_epoch: int | None


class Restarted(msgspec.Struct):
    topic: str
    epoch: int
    restarted: Formerly

    def told(self) -> str:
        before = self.restarted.previous_epoch
        known = "" if before is None else f", epoch {before} before"
        return f"{self.topic}: lost, it was made anew (epoch {self.epoch}{known})"


Loss: TypeAlias = Lost | Restarted
Item: TypeAlias = Record | Loss
# An item and the position behind it; a position alone where nothing was left of what was passed.
Entry: TypeAlias = tuple[Item | None, int, int]

_decode = msgspec.json.Decoder(_Page).decode


@dataclass(frozen=True)
class Choice:
    """What of a topic is wanted."""

    last: int | None = None
    since: int | None = None
    until: int | None = None
    tag: str | None = None

    @property
    def query(self) -> dict[str, str | int]:
        asked = {"since": self.since, "until": self.until, "tag": self.tag}
        return {name: value for name, value in asked.items() if value is not None}


class Feed:
    """One topic, from a position on. `seq` and `epoch` say how far its items were used: see `done`."""

    def __init__(
        self,
        server: Server,
        topic: str,
        choice: Choice,
        seq: int = 0,
        epoch: int | None = None,
        first: int = 0,
    ) -> None:
        """`first`: what comes before it is left out, in this life of the topic."""
        self._server = server
        self._choice = choice
        self.topic = topic
        self.seq = seq
        self.epoch = epoch
        self._first = first

    def done(self, entry: Entry) -> None:
        _, self.seq, self.epoch = entry

    @property
    def position(self) -> str:
        """As it is named on a command line."""
        return self.topic if self.epoch is None else f"{self.topic}@{self.seq}~{self.epoch}"

    def history(self) -> Iterator[Entry]:
        """Up to the head of now."""
        last = self._choice.last
        return self._walk(last) if last is None or last <= MOST else self._kept(last)

    def _walk(self, last: int | None = None) -> Iterator[Entry]:
        seq, epoch = self.seq, self.epoch
        while True:
            page = self._page(seq, epoch, last=last)
            for entry in self._entries(page, epoch):
                _, seq, epoch = entry
                yield entry
            # A page of another life says so, and nothing else: its records are asked for again.
            if page.caught_up and not page.is_of_another_life:
                return
            last = None

    def _kept(self, last: int) -> Iterator[Entry]:
        """More of the last ones than a server counts out: the losses in front of them are not wanted."""
        kept: deque[Entry] = deque()
        records = 0
        for entry in self._walk():
            kept.append(entry)
            records += isinstance(entry[0], Record)
            while records > last or (records == last and not isinstance(kept[0][0], Record)):
                records -= isinstance(kept.popleft()[0], Record)
        yield from kept

    def news(self) -> Iterator[Entry]:
        """What comes, for ever, and a position alone whenever a while has passed.

        A server that went away is waited for, and so is a topic that was dropped: if it comes back, that it
        is another one is told first.
        """
        seq, epoch = self.seq, self.epoch
        while True:
            try:
                page = self._page(seq, epoch, wait_ms=LONG_POLL_MS)
            except Refused as refusal:
                if refusal.code != "topic_not_found":
                    raise
                time.sleep(GONE_PAUSE_S)
                continue
            for entry in self._entries(page, epoch):
                _, seq, epoch = entry
                yield entry

    def _entries(self, page: _Page, epoch: int | None) -> Iterator[Entry]:
        gap = page.tombstone
        if page.is_of_another_life:
            assert gap is not None
            before = gap.previous_epoch if gap.previous_epoch is not None else epoch
            self._first = 0
            yield Restarted(self.topic, page.epoch, Formerly(before)), gap.gap_from - 1, page.epoch
            return
        if gap is not None:
            told = Gap(gap.gap_from, gap.gap_to, gap.reason)
            yield Lost(self.topic, page.epoch, told), gap.gap_to, page.epoch
        for found in page.records:
            if found.seq >= self._first:
                yield self._record(found, page.epoch), found.seq, page.epoch
        yield None, page.next_from_seq, page.epoch

    def _record(self, found: _Record, epoch: int) -> Record:
        meta = found.meta if len(found.meta) else None
        return Record(self.topic, epoch, found.seq, found.ts, found.data, found.tag, found.node, meta)

    def _page(
        self,
        seq: int,
        epoch: int | None,
        *,
        last: int | None = None,
        wait_ms: int = 0,
    ) -> _Page:
        query: dict[str, str | int] = {"include_tags": "true", "limit": MOST, **self._choice.query}
        if last is None or epoch is not None:
            query["from_seq"] = seq
        if epoch is not None:
            query["epoch"] = epoch
        if last is not None:
            query["last"] = last
        if wait_ms:
            query["wait_ms"] = wait_ms
        path = f"{topic_path(self.topic, 'records')}?{urlencode(query)}"
        if not wait_ms:
            return decode_or_refuse(_decode, self._server.fetch("GET", path))
        return decode_or_refuse(_decode, self._server.fetch("GET", path, silent_s=wait_ms / 1000))
