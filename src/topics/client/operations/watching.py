"""Follows several topics: each is read as `tail` reads one, and an event stream tells which has more.

    read what there is, topic by topic  →  all level: open the stream at these positions  →  it names a topic

The stream carries no data: loss, lives and positions are the readers' business, here as everywhere.
"""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from topics.client.cursors import Cursor
from topics.client.encoding import Codec, codec_for
from topics.client.operations.pages import Batch
from topics.client.operations.reading import IgnoredLosses, OnLoss, Reading, ReadOptions
from topics.client.wire.requests import Broken, NotConnected, WireRequest, path
from topics.client.wire.session import Session, refused_by

# A stream without a heartbeat for this long is dead.
SILENCE_S = 30.0
HEARTBEAT_MS = 10_000
# The events after which a topic has more to read.
MORE_EVENTS = ("record", "tombstone", "topic-deleted")


class _Frame(msgspec.Struct, gc=False):
    topic: str
    to_seq: int | None = None


_decode_frame = msgspec.json.Decoder(_Frame).decode


class StreamEvents:
    """Parses an event stream, for the names of topics that have more than their readers have read."""

    def __init__(self, readings: dict[str, Reading[Any]]) -> None:
        self._readings = readings
        self._rest = b""

    def topics_in(self, data: bytes) -> list[str]:
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        return [name for frame in frames if (name := self._topic_of(frame)) is not None]

    def _topic_of(self, frame: bytes) -> str | None:
        fields = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
        if fields.get(b"event", b"").decode() not in MORE_EVENTS:
            return None
        told = _decode_frame(fields[b"data"])
        reading = self._readings.get(told.topic)
        if reading is None or (told.to_seq is not None and told.to_seq <= reading.position[0]):
            return None  # read already, while the stream was not looked at
        return told.topic


class Watching:
    def __init__(self, session: Session, readings: dict[str, Reading[Any]], idle_s: float | None) -> None:
        if not readings:
            raise ValueError("name at least one topic to watch")
        self._session = session
        self._readings = readings
        self._idle_s = idle_s
        self._heard = time.monotonic()
        # The topics that may have more, in the order to read them.
        self._waiting = list(readings)
        self._stream: Any = None
        self._events = StreamEvents(readings)

    async def begin(self) -> None:
        for reading in self._readings.values():
            await reading.begin()

    async def next_turn(self) -> tuple[Reading[Any], Batch[Any]] | None:
        """Return a page of one topic with its reader; None after `idle_s` without a record."""
        while True:
            while self._waiting:
                name = self._waiting.pop(0)
                reading = self._readings[name]
                batch = await reading.next_batch()
                if batch is None:
                    continue
                if not reading.is_caught_up or batch.loss is not None:
                    self._waiting.append(name)
                if batch.records or batch.loss is not None or batch.invalid is not None:
                    self._heard = time.monotonic()
                    return reading, batch
                await reading.batch_done(batch)
            if not (await self._wait()):
                return None

    async def _wait(self) -> bool:
        """Wait until a topic may have more. Returns whether there is time left."""
        while not self._waiting:
            left = self._left_s()
            if left == 0:
                return False
            if self._stream is None and not (await self._open()):
                # The next read, with its retries, finds out why.
                self._waiting = list(self._readings)
                break
            data = await self._session.io.receive(self._stream, min(left, SILENCE_S))
            if data:
                self._waiting += [name for name in self._events.topics_in(data) if name not in self._waiting]
            elif data is not None or left >= SILENCE_S:
                self._hang_up()  # it has ended, or is dead
        return True

    def _left_s(self) -> float:
        if self._idle_s is None:
            return SILENCE_S
        return max(self._heard + self._idle_s - time.monotonic(), 0.0)

    async def _open(self) -> bool:
        """Open the stream at the positions of the readers, so that it reports all that they have not read."""
        query = [("include_data", "false"), ("include_meta", "false"), ("heartbeat_ms", str(HEARTBEAT_MS))]
        for name, reading in self._readings.items():
            seq, epoch = reading.position
            query.append(("topic", f"{name}@{seq}" + ("" if epoch is None else f"~{epoch}")))
        try:
            request = WireRequest(method="GET", target=f"{path('tail')}?{urlencode(query)}")
            response, self._stream = await self._session.io.open(request)
        except (NotConnected, Broken):
            return False
        self._events = StreamEvents(self._readings)
        if 400 <= response.status < 429:
            raise refused_by(response)
        return response.status < 400

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def close(self) -> None:
        self._hang_up()
        for reading in self._readings.values():
            await reading.close()


def watching(
    session: Session,
    cursors: Mapping[str, Cursor | None],
    idle_s: float | None,
    on_loss: OnLoss | None,
    ignore_loss: str | None,
) -> Watching:
    options = ReadOptions(
        follow=True, from_head=True, waits=False, idle_s=None, on_loss=on_loss, ignore_loss=ignore_loss
    )
    codec: Codec[Any] = codec_for(None)
    readings = {
        name: Reading(session, name, codec, cursor, options, IgnoredLosses())
        for name, cursor in cursors.items()
    }
    return Watching(session, readings, idle_s)
