"""The shapes of an append: how each is written over HTTP/1.1, HTTP/2 or a WebSocket, and as XADD."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpack import Encoder

from benchmarks.compiled import NUMBER, STREAM_ID, Framing, Greeting, Plan, Sent
from benchmarks.contenders import command, http_request
from benchmarks.payloads import COMPACT, NAMED, SPACED, WITH_META, Shape
from benchmarks.peer_servers import NAMES

# An entry of TOPICS_API_KEYS: it may write to the topics that are measured, and nothing else.
API_KEY = "writer:write:bench-"
_KEY = "bench-key-" + NUMBER.decode()
_CONNECTIONS = 16
_END_STREAM, _END_HEADERS = 1, 4
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_ACK = 1
_PING_ID = b"greeting"
_WIDEST_WINDOW = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Append:
    name: str
    content: Shape = COMPACT
    # In one request.
    records: int = 1
    # Where each request has an idempotency key of its own.
    key: Literal["", "header", "body"] = ""
    # Of the topics.
    config: Mapping[str, object] = field(default_factory=dict)
    durability: Literal["disk", "fsync"] = "disk"
    # Of the server.
    settings: tuple[tuple[str, str], ...] = ()
    api_key: str = ""
    connections: int = _CONNECTIONS
    # Requests that a connection sends before it waits for their replies.
    at_once: int = 1
    protocol: Literal["http", "http2", "websocket"] = "http"
    is_watched: bool = False
    is_routed: bool = False
    # Each connection stays with one topic, so that the heads of its requests are equal.
    stays: bool = False
    # The topic does not exist, and the request does not create it.
    is_missing: bool = False
    # How many keys the server remembers before the first round.
    remembered: int = 0
    # Shapes that each connection sends in turns, and the configuration of each topic.
    parts: tuple[Append, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}, API key" if self.api_key else self.name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}-missing" for name in NAMES) if self.is_missing else NAMES

    def configuration(self, name: str) -> dict[str, object]:
        config = self.config
        if self.parts:
            config = _CONFIGURATIONS[NAMES.index(name)]
        return {**config, "durability": self.durability}

    def plan(self, connection: int) -> Plan:
        """Each connection goes round all topics, and starts with another one than its neighbour."""
        if self.protocol == "http2":
            return self._http2_plan(connection)
        greetings = [self._upgrade()] if self.protocol == "websocket" else []
        return Plan(greetings, [part._sent(*request) for part, request in self._requests(connection)])

    def redis_plan(self, connection: int) -> Plan:
        return Plan((), [part._xadd(*request) for part, request in self._requests(connection)])

    def _requests(self, connection: int) -> list[tuple[Append, tuple[str, int]]]:
        """For each request: its shape, the topic, and the number of its first record."""
        names, parts = self.names, self.parts or (self,)
        if self.stays:
            names = (names[connection % len(names)],) * len(names)
        return [
            (parts[(connection + at) % len(parts)], (names[(connection + at // len(parts)) % len(names)], at))
            for at in range(len(names) * len(parts))
        ]

    def _numbers(self, at: int) -> range:
        return range(at * self.records, (at + 1) * self.records)

    def _value(self, at: int) -> dict[str, Any]:
        value: dict[str, Any] = {"records": [self.content.record(n) for n in self._numbers(at)]}
        if self.key == "body":
            value["idempotency_key"] = _KEY
        if self.is_missing:
            value["create"] = False
        return value

    def _headers(self) -> dict[str, str]:
        secret = self.api_key.partition(":")[0]
        key = {"Idempotency-Key": _KEY} if self.key == "header" else {}
        return ({"Authorization": f"Bearer {secret}"} if secret else {}) | key

    def _sent(self, name: str, at: int) -> Sent:
        if self.protocol == "websocket":
            value = {"op": "publish", "request_id": at, "topic": name, **self._value(at)}
            return Sent(_masked(self.content.text(value)), framing=Framing.WEBSOCKET)
        body = self.content.text(self._value(at))
        data = http_request(f"/v0/topics/{name}", body, headers=self._headers()).data
        status = b"404" if self.is_missing else b""
        return Sent(data * self.at_once, replies=self.at_once, status=status)

    def _upgrade(self) -> Greeting:
        lines = [
            "GET /v0/ws HTTP/1.1",
            "Host: 127.0.0.1",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            *(f"{name}: {value}" for name, value in self._headers().items()),
        ]
        return Greeting("\r\n".join(lines).encode() + b"\r\n\r\n", b"\r\n\r\n")

    def _http2_plan(self, connection: int) -> Plan:
        """The first requests fill the table of headers, as a client does that stays connected."""
        encoder = Encoder()
        requests = [request for _, request in self._requests(connection)]
        sent = [self._http2(encoder, *request) for request in (*requests, *requests)]
        return Plan([_HTTP2_START], sent, once=len(requests))

    def _http2(self, encoder: Encoder, name: str, at: int) -> Sent:
        body = self.content.text(self._value(at))
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "127.0.0.1",
            ":path": f"/v0/topics/{name}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            **{name.lower(): value for name, value in self._headers().items()},
        }
        head = encoder.encode(headers.items(), huffman=True)
        frames = _frame(_HEADERS, _END_HEADERS, STREAM_ID, head) + _frame(_DATA, _END_STREAM, STREAM_ID, body)
        return Sent(frames, framing=Framing.HTTP2)

    def _xadd(self, name: str, at: int) -> Sent:
        """The content without keys. A missing stream is not created either; the reply is one line then."""
        missing = (b"NOMKSTREAM",) if self.is_missing else ()
        commands = [
            command(b"XADD", name.encode(), *missing, b"*", *self.content.fields(n))
            for n in self._numbers(at)
        ] * self.at_once
        return Sent(b"".join(commands), lines=len(commands) * (1 if self.is_missing else 2))


def _masked(text: bytes) -> bytes:
    """A text frame of a client whose mask is zero."""
    size = struct.pack("!BH", 0x80 | 126, len(text)) if len(text) > 125 else bytes([0x80 | len(text)])
    return b"\x81" + size + bytes(4) + text


def _frame(kind: int, flags: int, stream: bytes, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + stream + payload


_WHOLE = bytes(4)
_HTTP2_START = Greeting(
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(_SETTINGS, 0, _WHOLE, b"")
    + _frame(_SETTINGS, _ACK, _WHOLE, b"")
    # Replies of a whole run fit into it.
    + _frame(_WINDOW_UPDATE, 0, _WHOLE, struct.pack("!I", _WIDEST_WINDOW - 65535))
    + _frame(_PING, 0, _WHOLE, _PING_ID),
    _PING_ID,
)

PLAIN = Append(name="plain")
_BLANKS = Append(name="blanks", content=SPACED)
_NAMED = Append(name="tag-and-node", content=NAMED)
_META = Append(name="meta", content=WITH_META)
_TWO = Append(name="two-records", records=2)
_KEY_IN_HEADER = Append(name="key-in-header", key="header")
_KEY_IN_BODY = Append(name="key-in-body", key="body")
_CONFIGURATIONS: tuple[Mapping[str, object], ...] = (
    {},
    {"ttl_ms": 60_000},
    {"cap_records": 10_000},
    {"priority": 100},
)
# Shapes that are measured on a server with API keys, too.
COMMON = (
    PLAIN,
    _BLANKS,
    _NAMED,
    _META,
    _TWO,
    _KEY_IN_HEADER,
    _KEY_IN_BODY,
    *(Append(name=str(*config).partition("_")[0], config=config) for config in _CONFIGURATIONS[1:]),
)
OTHERS = (
    Append(name="key-in-header-tag-and-node", key="header", content=NAMED),
    Append(name="keys-full", key="header", settings=(("TOPICS_MAX_IDEMPOTENCY_KEYS", "2000"),)),
    # Takes long to prepare: --quick leaves it out unless it is named.
    Append(
        name="keys-full-million",
        key="header",
        config={"idempotency_window_ms": 3_600_000},
        settings=(("TOPICS_MAX_IDEMPOTENCY_KEYS", "1000000"),),
        remembered=1_000_000,
    ),
    Append(name="100", records=100),
    Append(name="100-blanks", records=100, content=SPACED),
    Append(name="100-tags-and-nodes", records=100, content=NAMED),
    Append(name="100-key-in-body", records=100, key="body"),
    Append(name="watched", is_watched=True),
    Append(name="router", is_routed=True),
    Append(name="missing-topic", is_missing=True),
    Append(name="pipelined", at_once=16),
    Append(name="http2", protocol="http2"),
    Append(name="websocket", protocol="websocket"),
    Append(name="same-topic", stays=True),
    Append(name="one-connection", connections=1),
    Append(name="plain-fsync", durability="fsync", connections=64),
    Append(
        name="mixed-fsync",
        durability="fsync",
        connections=64,
        parts=(PLAIN, _BLANKS, _NAMED, _META, _TWO, _KEY_IN_HEADER, _KEY_IN_BODY),
    ),
)
SHAPE_NAMES = tuple(shape.name for shape in (*COMMON, *OTHERS))
