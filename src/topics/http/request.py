"""What a client asks for, whichever protocol carried it, and what is decided before its handler runs.

A client may send `X-Request-Id`, so that its log and ours can be laid side by side; the id comes back with
the answer. Without one, a request gets an id only when there is something to tell about it.
"""

import re
import secrets
from collections import Counter
from time import perf_counter
from typing import TypeVar, overload
from urllib.parse import parse_qsl

from mypy_extensions import mypyc_attr

from topics.core import NotDecoded, StrictDecoder, UnknownFields, explain, invalid, limit_reached
from topics.http.admission.auth import ApiKey
from topics.http.admission.callers import page_headers
from topics.http.admission.limits import RequestRoom
from topics.http.response_heads import HeaderList
from topics.http.routing import Match, Route

Body = TypeVar("Body")
_TRUE = ("true", "1")
_FALSE = ("false", "0")
_MOST_DIGITS = 40
ID_HEADER = b"x-request-id"
# The protocol that a request of HTTP/2 wants to speak, under a name that no header of HTTP/1.1 can have.
PROTOCOL, WEBSOCKET = b":protocol", b"websocket"
# What ends up in logs is short and cannot break a line; anything else is as good as no id.
_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


_PLACE, _ROOM = 1, 2


@mypyc_attr(allow_interpreted_subclasses=True)
class StrictInput:
    """A request or a message. Its unknown and duplicate names are refused when nothing else is wrong."""

    __slots__ = ("unknown_fields",)

    unknown_fields: UnknownFields | None

    @property
    def ignores_unknown(self) -> bool:
        """Whether the server is set to ignore unknown names."""
        raise NotImplementedError

    def note(self, fields: UnknownFields) -> None:
        """Keep the names for a refusal, or for the mention in another mistake."""
        if self.ignores_unknown:
            fields.ignore_unknown()
        if self.unknown_fields is not None:
            self.unknown_fields.join(fields)
        elif fields:
            self.unknown_fields = fields

    def refuse_unknown_fields(self) -> None:
        """Raise the refusal, before the request has an effect."""
        if self.unknown_fields is not None:
            raise self.unknown_fields.refusal()

    def decode(self, decoder: StrictDecoder[Body], body: bytes) -> Body:
        """Decode a body. Raises `invalid_request`; unknown and duplicate names are noted and left out."""
        try:
            return decoder.decode(body)
        except NotDecoded:
            return self.explain(decoder, body)

    def explain(self, decoder: StrictDecoder[Body], body: bytes) -> Body:
        """Decode a body that the decoder has refused, but for its unknown and duplicate names."""
        return decoder.decode_checked(explain(body, decoder).tell(self.note))


class Request(StrictInput):
    """The fields are set by the exchange: a constructor here would be one more call for each request."""

    __slots__ = (
        "_holds",
        "_query",
        "_room",
        "_room_bytes",
        "allow",
        "body",
        "headers",
        "key",
        "method_bytes",
        "name",
        "page",
        "params",
        "plain",
        "received",
        "route",
        "started",
        "target",
    )

    method_bytes: bytes
    target: bytes
    # Names in lower case; repeated headers joined with commas.
    headers: dict[bytes, bytes]
    # A request with the same head was admitted before: only checks that depend on the moment remain.
    body: bytes
    # How much of the body has arrived.
    received: int
    key: ApiKey | None
    route: Route | None
    name: str
    params: tuple[str, ...]
    # When it was complete, on the clock of time.perf_counter; 0 before it was let in.
    started: float
    # The usual head will do for its answer.
    plain: bool
    # Methods of a path that does not know this one.
    allow: bytes
    # The origin of a page from elsewhere that may read the answer.
    page: bytes | None
    # What has to be given back when it is answered: nothing, or some of these.
    _holds: int
    _query: dict[str, str] | None
    # While it holds some of it.
    _room: RequestRoom
    _room_bytes: int

    @property
    def method(self) -> str:
        return self.method_bytes.decode()

    @property
    def handled(self) -> bool:
        """It was let in, and its handler was called."""
        return self.started > 0.0

    def query(self, name: str) -> str | None:
        """The first value given for a query parameter, decoded."""
        if self._query is None:
            # Reversed: of several values, the first one has to win.
            self._query = dict(reversed(self._query_pairs()))
        return self._query.get(name)

    def _query_pairs(self) -> list[tuple[str, str]]:
        text = self.target.partition(b"#")[0].partition(b"?")[2].decode("utf-8", "replace")
        return parse_qsl(text, keep_blank_values=True, errors="replace")

    @overload
    def query_flag(self, name: str, default: bool) -> bool: ...

    @overload
    def query_flag(self, name: str, default: None) -> bool | None: ...

    def query_flag(self, name: str, default: bool | None) -> bool | None:
        value = self.query(name)
        if value in _TRUE:
            return True
        return False if value in _FALSE else default

    def query_number(self, name: str) -> int | None:
        """None when it is not given; anything but an unsigned integer is a mistake."""
        text = self.query(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal()):
            raise invalid(f"{name} must be an unsigned integer")
        # What is longer than this is too large for anything, and costs as much as it is long.
        return int(text[:_MOST_DIGITS])

    def query_all(self, name: str) -> list[str]:
        """Every value given for a query parameter, in their order."""
        return [value for given, value in self._query_pairs() if given == name]

    # Admission and dispatch

    def resolve(self, match: Match) -> None:
        """Take over what its method and its path resolve to."""
        self.route = match.route
        self.name = match.name
        self.params = match.params
        self.allow = match.allow
        if match.is_head:
            self.plain = False

    def identify(self, key: ApiKey | None) -> None:
        self.key = key

    def start(self) -> float:
        """Note that its handler is called now, and return the time."""
        self.started = now = perf_counter()
        return now

    def replace_body(self, body: bytes) -> None:
        self.body = body

    # Unknown and duplicate names

    def note_query(self) -> None:
        """Note parameters of the query that the route does not know, or that occur twice."""
        assert self.route is not None
        known, pairs = self.route.known_query, self._query_pairs()
        self._query = dict(reversed(pairs))
        names = [name for name, _ in pairs]
        fields = UnknownFields.among(names, known)
        if len(self._query) < len(names):
            # Of several tokens the first one counts: a token says who asks, not what for.
            for name, times in Counter(names).items():
                if times > 1 and name in self.route.query and name not in self.route.repeatable:
                    fields.add_duplicate(name)
        self.note(fields)

    # Its place among those of its key, and its room in memory

    def take_place(self, most: int) -> None:
        """Count the request among those of its key, of which there may be `most`; 0 for any number."""
        key = self.key
        assert key is not None
        if most and key.inflight >= most:
            raise limit_reached("max_inflight_per_key", most)
        key.inflight += 1
        self._holds |= _PLACE

    def take_room(self, room: RequestRoom, count: int) -> None:
        """So many bytes in all, if it has not got them already; raises when there is no room."""
        if not self._holds & _ROOM:
            self._room, self._room_bytes = room, 0
        more = count - self._room_bytes
        if more > 0:
            room.take(more)
            self._room_bytes = count
            self._holds |= _ROOM

    def _give_back(self) -> None:
        holds, self._holds = self._holds, 0
        if holds & _PLACE:
            assert self.key is not None
            self.key.inflight -= 1
        if holds & _ROOM:
            self._room.give(self._room_bytes)

    # Its name in logs

    def given_id(self) -> bytes | None:
        """The id the client sent, or the one that was made up since."""
        sent = self.headers.get(ID_HEADER)
        return sent if sent is not None and _ID.fullmatch(sent) else None

    def ensure_id(self) -> str:
        """The id of a request that is being talked about; the answer will carry it."""
        known = self.given_id()
        if known is None:
            known = secrets.token_hex(8).encode()
            # A copy: requests that look alike share one dictionary.
            self.headers = {**self.headers, ID_HEADER: known}
            self.plain = False
        return known.decode()

    def with_own(self, headers: HeaderList | None) -> HeaderList | None:
        """The headers of its answer, with its id if it has one, and what a page needs to read it."""
        known = self.given_id()
        if known is not None:
            headers = [*(headers or ()), (b"X-Request-Id", known)]
        return headers if self.page is None else [*(headers or ()), *page_headers(self.page)]

    # Where it came from

    def let_page(self, origin: bytes) -> None:
        """It is of a page from elsewhere, which may read the answer."""
        self.page = origin
        self.plain = False

    def scheme(self) -> str:
        """As the client has it: with TLS here, or at a proxy on this machine."""
        raise NotImplementedError

    def own_address(self) -> str | None:
        """The address of ours that the client has connected to."""
        raise NotImplementedError

    def client(self) -> str | None:
        """The address that it came from: known until it is answered, and while its answer is a stream."""
        return None

    def trace_id(self) -> str | None:
        """The caller's trace, for finding a line of the log from a trace and back."""
        match = _TRACE.fullmatch(self.headers.get(b"traceparent", b""))
        trace = None if match is None else match[1].decode()
        return None if trace == _NO_TRACE else trace
