"""An HTTP/2 connection: frames in, requests to their lanes, answers out in turns.

What a lane cannot send because its client does not read it stays in the lane, and holds no other one up. When
too much of it waits in all lanes together, requests that come wait too.
"""

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

from topics.http.wire.channel import CLOSED, LINGER, Channel
from topics.http.wire.context import HEAD, IDLE, LINGERING, WORKING, WRITE, WireContext, is_overdue
from topics.http.wire.http2.input_bounds import (
    ANSWER,
    DATA,
    FRAME,
    RESET,
    SETTINGS,
    STREAM_LEFT,
    Calm,
    FrameSizes,
)
from topics.http.wire.http2.lane import Lane
from topics.http.wire.http2.request_head import read_head
from topics.values import MIB

logger = logging.getLogger("topics.http")

MOST_STREAMS = 100
# How much a client may send before it hears from us: of one body, and of all together.
_STREAM_WINDOW = MIB
_CONNECTION_WINDOW = 8 * MIB
# Frames may be tiny, and none of them is for free: after this much, others have their turn.
_SLICE_BYTES = 16 * 1024
# Answers of all lanes that the client has not taken: beyond it, its requests wait.
MOST_UNSENT = 16 * MIB
# When the server stops: after it, clients with requests under way are told as well.
GRACE_S = 3.0
_LAST_STREAM = 2**31 - 1
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


class Http2Connection(Channel):
    __slots__ = (
        "_calm",
        "_feeding",
        "_handlers",
        "_held",
        "_input",
        "_is_leaving",
        "_lanes",
        "_pump_due",
        "_ready",
        "_requests",
        "_settled",
        "_sizes",
        "_taken_back",
        "h2",
        "unsent",
    )

    def __init__(self, context: WireContext) -> None:
        super().__init__(context)
        self.h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # What we send is our own.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.local_settings = _settings(context)
        self.h2.decoder.max_header_list_size = context.limits.head_bytes
        self._calm = Calm(context.loop.time)
        self._lanes: dict[int, Lane] = {}
        # Lanes that have something to send and perhaps may; kept in the order of their turns.
        self._ready: dict[Lane, None] = {}
        # Lanes whose requests wait.
        self._held: deque[Lane] = deque()
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
        # Bytes that wait in all lanes.
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

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.mode != CLOSED:
            self._begin()

    def take_over(self, transport: Any, early: bytes) -> None:
        """From a connection that turned out to speak HTTP/2; `early` is what it has read of that."""
        self.transport = transport
        self.context.connections.add(self)
        self._begin()
        self.data_received(early)

    def _begin(self) -> None:
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(_CONNECTION_WINDOW - _DEFAULT_WINDOW)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._lose_lanes()
        self._input.clear()

    def _lose_lanes(self) -> None:
        lanes, self._lanes = self._lanes, {}
        self._ready.clear()
        self._held.clear()
        for lane in lanes.values():
            lane.transport.end()
            lane.connection_lost(None)

    def wind_down(self) -> None:
        """Requests that are under way are answered; the client is asked to bring no more.

        Some clients, such as those made with h2, drop everything at that word: hence the grace.
        """
        if not self.mode:
            self._is_leaving = True
            self._leave_if_done()
            self.context.loop.call_later(GRACE_S, self._announce_leaving)

    def _announce_leaving(self) -> None:
        if not self.mode:
            # Not by our h2, for which this would be the end.
            self._write_out()
            self.transport.write(GoAwayFrame(0, last_stream_id=_LAST_STREAM).serialize())

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._lanes and self.mode != CLOSED:
            self._say_goodbye(ErrorCodes.NO_ERROR)

    def give_up(self) -> None:
        """Nothing has been asked for long enough; or what was is not taken."""
        if self.mode or self._lanes or self._write_paused or not self._settled:
            self.transport.abort()
        else:
            self._say_goodbye(ErrorCodes.NO_ERROR)

    def _say_goodbye(self, code: ErrorCodes) -> None:
        self.h2.close_connection(code)
        self._leave(unread=code is not ErrorCodes.NO_ERROR)

    def _leave(self, *, unread: bool) -> None:
        self._write_out()
        self._lose_lanes()
        self.end(unread=unread)

    @property
    def busy(self) -> bool:
        return any(lane.busy or not lane.is_stream for lane in self._lanes.values())

    def progress(self) -> tuple[int, int]:
        if self.mode == LINGER:
            return LINGERING, 0
        if self._write_paused or self.transport.is_closing():
            return WRITE, self.transport.get_write_buffer_size() // self.context.limits.write_step_bytes
        if not self._settled:
            return HEAD, 0
        self._end_stalled()
        return (WORKING, 0) if self._lanes else (IDLE, self._requests)

    def _end_stalled(self) -> None:
        """Who leaves one request unfinished, or one answer unread, loses that one. Streams have owners."""
        now, allowed_s = self.context.loop.time(), self.context.limits.allowed_s()
        for lane in tuple(self._lanes.values()):
            if not lane.is_stream and is_overdue(lane, now, allowed_s):
                lane.transport.reset(ErrorCodes.CANCEL)

    def reconsider(self) -> None:
        if not self._write_paused:
            self.flush()
        self._choose_reading()

    # Frames in

    def data_received(self, data: bytes) -> None:
        if self.mode:
            self.ignore(data)
            return
        self._input += data
        if not (self._pump_due or self._write_paused):
            self._pump()

    def _pump(self) -> None:
        """Some of the input; the rest when others have had their turn."""
        self._pump_due = False
        if self.mode or self._write_paused:
            return
        piece = bytes(self._input[:_SLICE_BYTES])
        del self._input[:_SLICE_BYTES]
        self._feed(piece)
        self._choose_reading()

    def _choose_reading(self) -> None:
        if self.mode:
            return
        if self._input and not self._pump_due and not self._write_paused:
            self._pump_due = True
            self.context.loop.call_soon(self._pump)
        if self._input or self._write_paused:
            self.pause_reading()
        else:
            self.resume_reading()

    def _feed(self, piece: bytes) -> None:
        if not self._sizes.fit(piece):
            self._say_goodbye(ErrorCodes.FRAME_SIZE_ERROR)
            return
        self._feeding = True
        try:
            received = self.h2.receive_data(piece)
            # What is asked and taken back in one breath is not even looked at.
            self._taken_back = {one.stream_id for one in received if isinstance(one, events.StreamReset)}
            for event in received:
                handle = self._handlers.get(type(event))
                if handle is not None:
                    handle(event)
                if self.mode:
                    return
        except ProtocolError:
            # h2 has made the GOAWAY that says what was wrong.
            self._leave(unread=True)
            return
        except Exception:
            logger.exception("a frame could not be handled")
            self.transport.abort()
            return
        finally:
            self._feeding = False
        self.flush()

    def _spend(self, cost: int) -> None:
        if not self._calm.spend(cost) and not self.mode:
            self._say_goodbye(ErrorCodes.ENHANCE_YOUR_CALM)

    def _request(self, event: events.RequestReceived) -> None:
        self._requests += 1
        if event.stream_id in self._taken_back:
            return
        lane = Lane(self, event.stream_id, read_head(event.headers))
        self._lanes[event.stream_id] = lane
        if event.stream_ended is not None:
            lane.receive_end()
        if self.unsent > MOST_UNSENT or self._held:
            self._held.append(lane)
        else:
            lane.start()

    def _data(self, event: events.DataReceived) -> None:
        lane = self._lanes.get(event.stream_id)
        if not event.data and event.stream_ended is None:
            self._spend(FRAME)
        if lane is not None and lane.holds_input:
            # Its client may send as much as fits into the windows, which stay as they are.
            lane.hold(event.data, event.flow_controlled_length)
            return
        self.take_note(event.stream_id, event.flow_controlled_length)
        if lane is not None:
            lane.receive(event.data)

    def take_note(self, stream_id: int, size: int) -> None:
        """So much has been taken: as much more may come."""
        if size and not self.mode:
            self.h2.acknowledge_received_data(size, stream_id)

    def _ended(self, event: events.StreamEnded) -> None:
        lane = self._lanes.get(event.stream_id)
        if lane is not None and not lane.is_received:
            lane.receive_end()

    def _was_reset(self, event: events.StreamReset) -> None:
        lane = self._lanes.get(event.stream_id)
        # A stream without an end is always left like this.
        cost = STREAM_LEFT if lane is not None and lane.is_stream else RESET
        if lane is not None:
            lane.transport.end()
            self._drop(lane)
            lane.connection_lost(None)
        self._spend(cost)

    def _window(self, event: events.WindowUpdated) -> None:
        self._spend(FRAME)
        if event.stream_id:
            lane = self._lanes.get(event.stream_id)
            if lane is not None:
                self._ready[lane] = None
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

    # Answers out

    def show_ready(self, lane: Lane) -> None:
        self._ready[lane] = None
        self.flush()

    def _all_ready(self) -> None:
        for lane in self._lanes.values():
            self._ready.setdefault(lane)

    def flush(self) -> None:
        """Send what may be sent; at the end of a piece of input, for all that came of it."""
        if self._feeding or self.mode:
            return
        self._feeding = True
        try:
            self._take_turns()
            while self._held and self.unsent <= MOST_UNSENT and not self.mode:
                self._held.popleft().start()
                self._take_turns()
        finally:
            self._feeding = False
        self._write_out()
        self._leave_if_done()

    def _take_turns(self) -> None:
        """A frame for each lane, until all have nothing to send, or may not."""
        while self._ready and not self._write_paused and not self.mode:
            lane = next(iter(self._ready))
            del self._ready[lane]
            size = lane.send_some()
            if size >= 0:
                self._calm.earn(DATA)
                if not lane.transport.is_over:
                    self._ready[lane] = None
            if size >= _SLICE_BYTES:
                self._write_out()

    def _write_out(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def sent(self, lane: Lane) -> None:
        """All of its answer."""
        self._calm.earn(ANSWER)
        if lane.is_received:
            self.forget(lane)
        elif lane.ends_unread():
            self.reset(lane, ErrorCodes.NO_ERROR)

    def reset(self, lane: Lane, code: ErrorCodes) -> None:
        if self._lanes.get(lane.stream_id) is lane:
            try:
                self.h2.reset_stream(lane.stream_id, code)
            except ProtocolError:
                logger.debug("a stream was over before it was reset")
            self.forget(lane)
            self.flush()

    def forget(self, lane: Lane) -> None:
        """It is over. Its owner hears of that like that of a socket: in the next turn of the loop."""
        self._drop(lane)
        self.context.loop.call_soon(lane.connection_lost, None)

    def _drop(self, lane: Lane) -> None:
        self._lanes.pop(lane.stream_id, None)
        self._ready.pop(lane, None)
        if lane in self._held:
            self._held.remove(lane)
        lane.let_input_go()
