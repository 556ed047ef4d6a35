"""How many streams and sockets may be open: in all, and for each key."""

from collections.abc import Callable

from topics.http.door.keys import ApiKey
from topics.http.door.required_headers import unauthorized
from topics.values import Settings, limit_reached


class StreamSlots:
    """Work streams, watch streams and WebSockets share these places. A limit of 0 means none."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_sse_connections
        self._most_per_key = settings.max_sse_connections_per_key
        self.open = 0
        self._open_by_key: dict[ApiKey, int] = {}

    def take(self, key: ApiKey | None) -> Callable[[], None]:
        """A place for one connection; the returned function gives it back, however often it is called."""
        if key is not None and key.revoked:
            raise unauthorized()  # while the request was on its way
        if self._most and self.open >= self._most:
            raise limit_reached("max_sse_connections", self._most)
        if key is not None and self._most_per_key and self.open_of(key) >= self._most_per_key:
            raise limit_reached("max_sse_connections_per_key", self._most_per_key)
        self.open += 1
        if key is not None:
            self._open_by_key[key] = self.open_of(key) + 1
        return _Place(self, key).give_back

    def open_of(self, key: ApiKey) -> int:
        return self._open_by_key.get(key, 0)

    def release(self, key: ApiKey | None) -> None:
        self.open -= 1
        if key is not None:
            left = self._open_by_key.pop(key) - 1
            if left:
                self._open_by_key[key] = left


class _Place:
    __slots__ = ("_key", "_slots")

    def __init__(self, slots: StreamSlots, key: ApiKey | None) -> None:
        self._slots: StreamSlots | None = slots
        self._key = key

    def give_back(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release(self._key)
