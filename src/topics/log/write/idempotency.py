"""Memory of keyed writes: a retry inside the window gets the first answer instead of a second append."""

from typing import TYPE_CHECKING

from topics.values import MAX_IDEMPOTENCY_KEY_BYTES, invalid

if TYPE_CHECKING:
    from topics.log.write.append import AppendOp

# Expired keys are swept when a topic remembers this many, so the memory stays bounded by the window.
_SWEEP_AT = 1024


def checked_key(named: str | None, header: bytes | None) -> str | None:
    """The key of a write: the one that it names itself, else that of its header."""
    if named is None and header is not None:
        # Headers are bytes in no particular encoding, and different ones have to stay different keys.
        named = header.strip(b" \t").decode("utf-8", "surrogateescape")
    if named is not None and len(named.encode("utf-8", "surrogateescape")) > MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"idempotency_key must be at most {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
    return named


class Remembered:
    """A keyed write: pending until its commit, then an answer until it expires."""

    __slots__ = ("expires_ms", "op", "pending", "waiters")

    def __init__(self, op: "AppendOp", expires_ms: int) -> None:
        self.op = op
        self.expires_ms = expires_ms
        self.pending = True
        self.waiters: list[AppendOp] = []


class IdempotencyMemory:
    __slots__ = ("_by_key", "_sweep_at")

    def __init__(self) -> None:
        self._by_key: dict[str, Remembered] = {}
        self._sweep_at = _SWEEP_AT

    def find(self, key: str, now_ms: int) -> Remembered | None:
        entry = self._by_key.get(key)
        if entry is None or (not entry.pending and now_ms > entry.expires_ms):
            return None
        return entry

    def remember(self, key: str, entry: Remembered, now_ms: int) -> None:
        self._by_key[key] = entry
        if len(self._by_key) >= self._sweep_at:
            self._by_key = {k: e for k, e in self._by_key.items() if e.pending or now_ms <= e.expires_ms}
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._by_key))

    def forget(self, key: str) -> None:
        self._by_key.pop(key, None)
