"""An HTTP/2 connection: frames in, each request to its stream, replies out in turns.

What a stream cannot send because its client does not read it stays in the stream, and holds up no other one.
When too much of it waits in all streams together, new requests wait too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from topics.core import MIB
from topics.http.context import HEAD, IDLE, LINGERING, WORKING, WRITE, StallClock, WireContext
from topics.http.http2_stream import Http2Stream, read_head
from topics.http.reading import ReadControl

MOST_FRAME_BYTES = 16_384
_PREFACE_BYTES = 24
# A length of three bytes, and then kind, flags and stream.
_LENGTH_BYTES, _REST_BYTES = 3, 6

# The budget of a client for frames that ask for nothing, and how much of it comes back per second.
MOST = 1000.0
PER_S = 50.0
# A frame that asks for nothing.
FRAME = 1
SETTINGS = 5
# A request that is taken back before its answer has gone: it cost us nearly as much as one that is answered.
RESET = 10
STREAM_LEFT = 3
# An answer earns this, so that a client that asks may take back as many requests. A client acknowledges data
# with two frames.
ANSWER = 10
DATA = 2


class FrameSizes:
    """Checks the sizes of frames from their first bytes.

    `h2` would keep 16 MiB of a frame before it refuses the frame.
    """

    def __init__(self) -> None:
        # The bytes left of the current frame, and the known part of the length of the next one.
        self._skip = _PREFACE_BYTES
        self._length = b""

    def fit(self, piece: bytes) -> bool:
        """Return whether the frames in the next piece of the input are small enough."""
        at, end = 0, len(piece)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            missing = _LENGTH_BYTES - len(self._length)
            self._length += piece[at : at + missing]
            at += missing
            if len(self._length) == _LENGTH_BYTES:
                length = int.from_bytes(self._length)
                if length > MOST_FRAME_BYTES:
                    return False
                self._length = b""
                self._skip = _REST_BYTES + length
        return True


class Calm:
    """A budget for frames that ask for nothing: pings, settings, requests that are taken back."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._left = MOST
        self._since = clock_s()

    def spend(self, cost: int) -> bool:
        """False when it was too much."""
        self._left -= cost
        if self._left < 0:
            now = self._clock_s()
            self._left = min(self._left + (now - self._since) * PER_S, MOST)
            self._since = now
        return self._left >= 0

    def earn(self, amount: int) -> None:
        self._left = min(self._left + amount, MOST)


logger = logging.getLogger("topics.http")

MOST_STREAMS = 100
# The bytes that a client may send before it gets a window update: of one body, and of all together.
_STREAM_WINDOW = MIB
_CONNECTION_WINDOW = 8 * MIB
# Frames may be tiny, and none of them is for free: after this much, others have their turn.
_SLICE_BYTES = 16 * 1024
# Answers of all streams that the client has not taken: beyond it, its requests wait.
MOST_UNSENT = 16 * MIB
# When the server stops: after it, clients with requests under way are told as well.
GRACE_S = 3.0
_LAST_STREAM = 2**31 - 1
# The treatment of bytes that arrive: they are frames; or they are ignored, so that the client gets to read
# the last frames; or none arrive any more.
_OPEN, _LINGER, _CLOSED = range(3)
_DEFAULT_WINDOW = 65_535


def _settings(context: WireContext) -> Settings:
    return Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: context.limits.head_bytes,
            SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            SettingCodes.ENABLE_CONNECT_PROTOCOL: 1,
        },
    )


class Http2Connection(asyncio.Protocol):
    _transport: asyncio.Transport
    _read_control: ReadControl

    def __init__(self, context: WireContext) -> None:
        self.context = context
        self.stall = StallClock()
        self._mode = _OPEN
        self._write_paused = False
        self.h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # The server makes these headers itself.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.local_settings = _settings(context)
        self.h2.decoder.max_header_list_size = context.limits.head_bytes
        self._calm = Calm(context.loop.time)
        self._streams: dict[int, Http2Stream] = {}
        # Http2Streams that have something to send and perhaps may; kept in the order of their turns.
        self._ready: dict[Http2Stream, None] = {}
        # Http2Streams whose requests wait.
        self._held: deque[Http2Stream] = deque()
        self._input = bytearray()
        self._sizes = FrameSizes()
        self._feeding = False
        self._pump_due = False
        self._requests = 0
        # The client's settings have come: it does speak HTTP/2.
        self._settled = False
        self._is_leaving = False
        # Streams that end with a reset in the piece of input that is being handled.
        self._taken_back: set[int] = set()
        # Bytes that wait in all streams.
        self.unsent = 0
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.RequestReceived: self._request,
            events.DataReceived: self._data,
            events.StreamEnded: self._ended,
            events.StreamReset: self._was_reset,
            events.WindowUpdated: self._window,
            events.RemoteSettingsChanged: self._remote_settings,
            events.ConnectionTerminated: self._terminated,
            events.PingReceived: self._idle_frame,
            events.PriorityUpdated: self._idle_frame,
            events.TrailersReceived: self._idle_frame,
            events.UnknownFrameReceived: self._idle_frame,
        }

    # Its life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._attach(transport)
        if self.context.accept(self, self._transport):
            self._begin()
        else:
            self._mode = _CLOSED

    def take_over(self, transport: asyncio.BaseTransport, early: bytes) -> None:
        """Take over from a connection that has found out what is spoken. `early`: what it has read."""
        self._attach(transport)
        self.context.connections.add(self)
        self._begin()
        self.data_received(early)

    def _attach(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._read_control = ReadControl(self._transport)

    def _begin(self) -> None:
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(_CONNECTION_WINDOW - _DEFAULT_WINDOW)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._mode = _CLOSED
        self.context.forget(self)
        self._lose_streams()
        self._input.clear()

    def _lose_streams(self) -> None:
        streams, self._streams = self._streams, {}
        self._ready.clear()
        self._held.clear()
        for stream in streams.values():
            stream.end()
            stream.connection_lost()

    def wind_down(self) -> None:
        """Requests that are under way are answered; the client is asked to bring no more.

        Some clients, such as those made with h2, drop everything at that word: hence the grace.
        """
        if not self._mode:
            self._is_leaving = True
            self._leave_if_done()
            self.context.loop.call_later(GRACE_S, self._announce_leaving)

    def _announce_leaving(self) -> None:
        if not self._mode:
            # Not by our h2, for which this would be the end.
            self._write_out()
            self._transport.write(GoAwayFrame(0, last_stream_id=_LAST_STREAM).serialize())

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._streams and self._mode != _CLOSED:
            self._say_goodbye(ErrorCodes.NO_ERROR)

    def give_up(self) -> None:
        """Nothing has been asked for long enough; or what was is not taken."""
        if self._mode or self._streams or self._write_paused or not self._settled:
            self._transport.abort()
        else:
            self._say_goodbye(ErrorCodes.NO_ERROR)

    def _say_goodbye(self, code: ErrorCodes) -> None:
        self.h2.close_connection(code)
        self._leave(unread=code is not ErrorCodes.NO_ERROR)

    def _leave(self, *, unread: bool) -> None:
        self._write_out()
        self._lose_streams()
        if self._transport.is_closing():
            self._mode = _CLOSED
        elif unread:
            self._mode = _LINGER
            self._read_control.linger()
        else:
            self._mode = _CLOSED
            self._transport.close()

    @property
    def busy(self) -> bool:
        return any(stream.busy for stream in self._streams.values())

    def progress(self) -> tuple[int, int]:
        if self._mode == _LINGER:
            return LINGERING, 0
        if self._write_paused or self._transport.is_closing():
            return WRITE, self._transport.get_write_buffer_size() // self.context.limits.write_step_bytes
        if not self._settled:
            return HEAD, 0
        self._end_stalled()
        return (WORKING, 0) if self._streams else (IDLE, self._requests)

    def _end_stalled(self) -> None:
        """End requests that a client leaves unfinished or unread. Owners look after streams."""
        now, allowed_s = self.context.loop.time(), self.context.limits.allowed_s()
        for stream in tuple(self._streams.values()):
            if not stream.is_stream and stream.stall.is_overdue(stream.progress(), now, allowed_s):
                stream.give_up()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._choose_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self.flush()
        self._choose_reading()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    # Frames in

    def data_received(self, data: bytes) -> None:
        if self._mode:
            if self._mode == _LINGER:
                self._read_control.discard(len(data), self.context.limits.linger_bytes)
            return
        self._input += data
        if not (self._pump_due or self._write_paused):
            self._pump()

    def _pump(self) -> None:
        """Some of the input; the rest when others have had their turn."""
        self._pump_due = False
        if self._mode or self._write_paused:
            return
        piece = bytes(self._input[:_SLICE_BYTES])
        del self._input[:_SLICE_BYTES]
        self._feed(piece)
        self._choose_reading()

    def _choose_reading(self) -> None:
        if self._mode:
            return
        if self._input and not self._pump_due and not self._write_paused:
            self._pump_due = True
            self.context.loop.call_soon(self._pump)
        if self._input or self._write_paused:
            self._read_control.pause()
        else:
            self._read_control.resume()

    def _feed(self, piece: bytes) -> None:
        if not self._sizes.fit(piece):
            self._say_goodbye(ErrorCodes.FRAME_SIZE_ERROR)
            return
        self._feeding = True
        try:
            received = self.h2.receive_data(piece)
            # A request that is taken back in the same piece of input is not started.
            self._taken_back = {one.stream_id for one in received if isinstance(one, events.StreamReset)}
            for event in received:
                handle = self._handlers.get(type(event))
                if handle is not None:
                    handle(event)
                if self._mode:
                    return
        except ProtocolError:
            # h2 has made the GOAWAY that says what was wrong.
            self._leave(unread=True)
            return
        except Exception:
            logger.exception("a frame could not be handled")
            self._transport.abort()
            return
        finally:
            self._feeding = False
        self.flush()

    def _spend(self, cost: int) -> None:
        if not self._calm.spend(cost) and not self._mode:
            self._say_goodbye(ErrorCodes.ENHANCE_YOUR_CALM)

    def _request(self, event: events.RequestReceived) -> None:
        self._requests += 1
        if event.stream_id in self._taken_back:
            return
        stream = Http2Stream(self, event.stream_id, read_head(event.headers))
        self._streams[event.stream_id] = stream
        if event.stream_ended is not None:
            stream.receive_end()
        if self.unsent > MOST_UNSENT or self._held:
            self._held.append(stream)
        else:
            stream.start()

    def _data(self, event: events.DataReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if not event.data and event.stream_ended is None:
            self._spend(FRAME)
        if stream is not None and stream.holds_input:
            # Its client may send as much as fits into the windows, which stay as they are.
            stream.hold(event.data, event.flow_controlled_length)
            return
        self.acknowledge(event.stream_id, event.flow_controlled_length)
        if stream is not None:
            stream.receive(event.data)

    def acknowledge(self, stream_id: int, size: int) -> None:
        """So much has been taken: as much more may come."""
        if size and not self._mode:
            self.h2.acknowledge_received_data(size, stream_id)

    def _ended(self, event: events.StreamEnded) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None and not stream.is_received:
            stream.receive_end()

    def _was_reset(self, event: events.StreamReset) -> None:
        stream = self._streams.get(event.stream_id)
        # A stream without an end is always left like this.
        cost = STREAM_LEFT if stream is not None and stream.is_stream else RESET
        if stream is not None:
            stream.end()
            self._drop(stream)
            stream.connection_lost()
        self._spend(cost)

    def _window(self, event: events.WindowUpdated) -> None:
        self._spend(FRAME)
        if event.stream_id:
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                self._ready[stream] = None
        else:
            self._all_ready()

    def _remote_settings(self, _: events.RemoteSettingsChanged) -> None:
        self._settled = True
        self._spend(SETTINGS)
        self._all_ready()

    def _idle_frame(self, _: object) -> None:
        self._spend(FRAME)

    def _terminated(self, _: events.ConnectionTerminated) -> None:
        """The client leaves; h2 would not let us answer it any more."""
        self._leave(unread=False)

    # Replies out

    def count_unsent(self, size: int) -> None:
        """Add to the bytes that wait in the streams; `size` may be negative."""
        self.unsent += size

    def show_ready(self, stream: Http2Stream) -> None:
        self._ready[stream] = None
        self.flush()

    def _all_ready(self) -> None:
        for stream in self._streams.values():
            self._ready.setdefault(stream)

    def flush(self) -> None:
        """Send what may be sent; at the end of a piece of input, for all that came of it."""
        if self._feeding or self._mode:
            return
        self._feeding = True
        try:
            self._take_turns()
            while self._held and self.unsent <= MOST_UNSENT and not self._mode:
                self._held.popleft().start()
                self._take_turns()
        finally:
            self._feeding = False
        self._write_out()
        self._leave_if_done()

    def _take_turns(self) -> None:
        """A frame for each stream, until all have nothing to send, or may not."""
        while self._ready and not self._write_paused and not self._mode:
            stream = next(iter(self._ready))
            del self._ready[stream]
            size = stream.send_frame()
            if size >= 0:
                self._calm.earn(DATA)
                if not stream.is_over:
                    self._ready[stream] = None
            if size >= _SLICE_BYTES:
                self._write_out()

    def _write_out(self) -> None:
        data = self.h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def sent(self, stream: Http2Stream) -> None:
        """All of its answer."""
        self._calm.earn(ANSWER)
        if stream.is_received:
            self.forget(stream)
        elif stream.ends_unread():
            self.reset(stream, ErrorCodes.NO_ERROR)

    def reset(self, stream: Http2Stream, code: ErrorCodes) -> None:
        if self._streams.get(stream.stream_id) is stream:
            try:
                self.h2.reset_stream(stream.stream_id, code)
            except ProtocolError:
                logger.debug("a stream was over before it was reset")
            self.forget(stream)
            self.flush()

    def forget(self, stream: Http2Stream) -> None:
        """Forget a stream that is over. Its owner is told in the next turn of the loop, as for a socket."""
        self._drop(stream)
        self.context.loop.call_soon(stream.connection_lost)

    def _drop(self, stream: Http2Stream) -> None:
        self._streams.pop(stream.stream_id, None)
        self._ready.pop(stream, None)
        if stream in self._held:
            self._held.remove(stream)
        stream.release_input()
