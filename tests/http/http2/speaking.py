"""A client that speaks HTTP/2 frame by frame, and may do so badly."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

PATIENCE_S = 30.0
JSON = {"content-type": "application/json"}


@dataclass
class Heard:
    """What has come on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    informed: list[str] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Http2Client:
    """`reads=False`: it gives no window back, so each stream may bring it 64 KiB and no more."""

    def __init__(
        self, address: tuple[str, int], *, reads: bool = True, sock: socket.socket | None = None
    ) -> None:
        self.sock = sock or socket.create_connection(address, PATIENCE_S)
        self.sock.settimeout(PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reads = reads
        self._authority = "{}:{}".format(*address)
        self.h2 = H2Connection(
            H2Configuration(
                header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self.streams: dict[int, Heard] = {}
        self.goaways: list[tuple[int, int]] = []
        self.pongs = 0
        self.is_over = False
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def raw(self, data: bytes) -> None:
        """Past all rules."""
        self.sock.sendall(data)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        end: bool = True,
        flush: bool = True,
    ) -> int:
        stream = self.h2.get_next_available_stream_id()
        told = {":method": method, ":scheme": "http", ":authority": self._authority, ":path": path}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            told |= JSON
        # What is given wins, and None leaves out.
        told |= headers or {}
        self.h2.send_headers(stream, list(told.items()), end_stream=end and data is None)
        self.streams[stream] = Heard()
        if data is not None:
            self.send(stream, data, end=end)
        if flush:
            self.flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """A body, as far as the server takes it."""
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room <= 0:
                self.flush()
                self.hear()
                if self.streams[stream].ended or self.streams[stream].reset is not None:
                    return
                continue
            piece, data = data[:room], data[room:]
            self.h2.send_data(stream, piece, end_stream=end and not data)
        self.flush()

    def hear(self) -> bool:
        """One piece of what the server sends. False at the end."""
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.is_over = True
            return False
        try:
            heard = self.h2.receive_data(data)
        except ProtocolError:
            # For h2, nothing may come behind a GOAWAY.
            self.is_over = True
            return False
        for event in heard:
            self._note(event)
        self.flush()
        return True

    def _note(self, event: Any) -> None:
        match event:
            case events.ResponseReceived():
                self.streams[event.stream_id].headers = dict(event.headers)
            case events.InformationalResponseReceived():
                self.streams[event.stream_id].informed.append(dict(event.headers)[":status"])
            case events.DataReceived():
                self.streams[event.stream_id].body += event.data
                if self._reads:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case events.StreamEnded():
                self.streams[event.stream_id].ended = True
            case events.StreamReset():
                if event.remote_reset:
                    self.streams[event.stream_id].reset = int(event.error_code)
            case events.ConnectionTerminated():
                self.goaways.append((int(event.error_code), event.last_stream_id))
            case events.PingAckReceived():
                self.pongs += 1

    def answer(self, stream: int) -> Heard:
        heard = self.streams[stream]
        while not (heard.ended or heard.reset is not None):
            assert self.hear(), (heard, self.goaways)
        return heard

    def begin(self, stream: int) -> Heard:
        """The head of an answer, and a first byte of it."""
        heard = self.streams[stream]
        while not heard.body:
            assert self.hear(), (heard, self.goaways)
        return heard

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Heard:
        return self.answer(self.ask(method, path, body, headers))

    def until_over(self) -> list[tuple[int, int]]:
        """Until the server has ended the connection: how it said goodbye."""
        while self.hear():
            pass
        return self.goaways

    def close(self) -> None:
        self.sock.close()
