"""Small writes that a client has sent one behind the other are written together, and answered together.

    input that begins with several requests which are known ─▶ a bundle, which travels as a convoy's share of
    its own ─▶ all of it is written: the answers leave in one piece
            └─ nothing of it is: it is taken apart, and each request waits for its turn as any other does

Taken one after the other, each would wait until the one before it is in the journal.
"""

from collections.abc import Iterator
from typing import ClassVar

from topics.http.door.keys import ApiKey
from topics.http.wire.answer_heads import JSON, Heads
from topics.http.wire.known_requests import END, KnownRequest, KnownRequests
from topics.http.wire.routing import Convoys

# What comes behind so many waits for them.
MOST_REQUESTS = 64


class Bundle:
    """To their connection, this is the request under way."""

    __slots__ = ("_keys", "answers", "bodies", "closes", "is_gone", "requests")

    complete: ClassVar[bool] = True
    answered: ClassVar[bool] = False
    parked: ClassVar[bool] = False
    refusal: ClassVar[None] = None

    def __init__(self, requests: list[KnownRequest], bodies: list[bytes], keys: list[bytes]) -> None:
        self.requests = requests
        self.bodies = bodies
        self._keys = keys
        self.answers: list[bytes] = []
        # Its connection ends behind the last answer.
        self.closes = False
        # Nobody waits for an answer any more.
        self.is_gone = False

    @property
    def name(self) -> str:
        return self.requests[0].name

    @property
    def convoys(self) -> Convoys:
        convoys = self.requests[0].convoys
        assert convoys is not None
        return convoys

    @property
    def keys(self) -> list[bytes] | None:
        """The idempotency key of each, if they have one."""
        return self._keys if self._keys[0] else None

    @property
    def api_key(self) -> ApiKey | None:
        return self.requests[0].key

    def take_places(self, most: int) -> bool:
        """Each request has its place among those of its API key; False if there are not as many."""
        key, wanted = self.api_key, len(self.bodies)
        if key is None:
            return True
        if most and key.inflight + wanted > most:
            return False
        key.inflight += wanted
        return True

    def leave_places(self) -> None:
        if self.api_key is not None:
            self.api_key.inflight -= len(self.bodies)

    def each(self) -> Iterator[tuple[KnownRequest, bytes]]:
        """What each request is like, and its idempotency key, which may be empty."""
        return zip(self.requests, self._keys, strict=True)

    def add_answer(self, body: bytes) -> bool:
        """Whether it was the last."""
        self.answers.append(body)
        return len(self.answers) == len(self.bodies)

    def rendered(self, heads: Heads) -> bytes:
        """All the usual answers."""
        pieces = [b"%b%d\r\n\r\n%b" % (heads.json_200, len(body), body) for body in self.answers]
        if self.closes:
            last, head = self.answers[-1], heads.before_length(200, JSON, None, b"close")
            pieces[-1] = b"%b%d\r\n\r\n%b" % (head, len(last), last)
        return b"".join(pieces)


def bundle_in(known_requests: KnownRequests, data: bytes, at: int) -> tuple[Bundle, int] | None:
    """The requests with which the input goes on, if several go the same way; and where they end."""
    requests: list[KnownRequest] = []
    bodies: list[bytes] = []
    keys: list[bytes] = []
    while len(bodies) < MOST_REQUESTS and (end := data.find(END, at)) > 0:
        head, key = data[at:end], b""
        known = known_requests.get(head)
        if known is None:
            known, key = known_requests.find_keyed(head)
        if (
            known is None
            or known.convoys is None
            or (requests and not _go_together(known, key, requests[0], keys[0]))
        ):
            break
        stop = end + len(END) + known.body_bytes
        if stop > len(data):
            break
        requests.append(known)
        bodies.append(data[end + len(END) : stop])
        keys.append(key)
        at = stop
    return (Bundle(requests, bodies, keys), at) if len(bodies) > 1 else None


def _go_together(known: KnownRequest, key: bytes, first: KnownRequest, first_key: bytes) -> bool:
    """To the same topic, by the same caller; and all have idempotency keys, or none has."""
    same_way = known.convoys is first.convoys and known.name is first.name and known.key is first.key
    return same_way and bool(key) is bool(first_key)
