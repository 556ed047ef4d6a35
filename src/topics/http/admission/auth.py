"""API keys and tickets: who may ask, for what, and under which names.

Secrets are kept as digests only. A ticket opens one stream, once, within a minute: a browser's `EventSource`
has no headers, and with a ticket no key ever stands in a URL, and so in no log.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from topics.core import ApiError, ConfigError, KeyEntry, Settings, limit_reached, parse_key_file, parse_keys
from topics.http.admission.address import without_base

READ = 1
WRITE = 2
DELETE = 4
ADMIN = 8

SCOPES = {"read": READ, "write": WRITE, "delete": DELETE, "admin": ADMIN}
# Every way of writing a valid header takes a place; this only has to hold the usual ones.
_REMEMBERED_HEADERS = 1024


class ApiKey:
    """One configured key. `name` is for logs: the one it was given, or the beginning of its digest."""

    __slots__ = ("_prefixes", "digest", "inflight", "name", "revoked", "scopes")

    def __init__(self, entry: KeyEntry) -> None:
        self.digest = entry.digest
        self.scopes = sum(SCOPES[scope] for scope in entry.scopes)
        self._prefixes = entry.prefixes
        self.name = entry.name
        # Ordinary requests of this key that are not answered yet.
        self.inflight = 0
        # The key was removed while the server runs: its streams and waits end.
        self.revoked = False

    @property
    def prefixes(self) -> tuple[str, ...]:
        return self._prefixes

    @property
    def rights(self) -> tuple[bytes, int, tuple[str, ...]]:
        """Return the values that make it another key when they change."""
        return self.digest, self.scopes, self._prefixes

    def can(self, scopes: int) -> bool:
        return self.scopes & scopes == scopes

    def allows(self, name: str) -> bool:
        return not self._prefixes or name.startswith(self._prefixes)

    def rename(self, name: str) -> None:
        self.name = name

    def revoke(self) -> None:
        self.revoked = True

    def __repr__(self) -> str:
        return f"<ApiKey {self.name}>"


class KeyRing:
    """All keys. Without any, and without a file that could hold some, authentication is off."""

    def __init__(self, keys: list[ApiKey], *, enabled: bool | None = None) -> None:
        self.keys = keys
        self.enabled = bool(keys) if enabled is None else enabled
        # Keyed by the digest of the whole header: a lookup tells an attacker nothing about a secret.
        self._by_header: dict[bytes, ApiKey] = {}

    @classmethod
    def of(cls, settings: Settings) -> "KeyRing":
        keys = read_keys(settings)
        return cls(keys, enabled=bool(keys) or settings.api_keys_file is not None)

    def replace(self, keys: list[ApiKey]) -> set[ApiKey]:
        """From now on these are the keys. Returns those that are keys no longer.

        One whose rights are as before stays the same object: what it has open goes on.
        """
        before = {key.rights: key for key in self.keys}
        self.keys = []
        # The last of two equal secrets counts.
        for key in {key.digest: key for key in keys}.values():
            same = before.pop(key.rights, key)
            same.rename(key.name)
            self.keys.append(same)
        self._by_header.clear()
        for key in before.values():
            key.revoke()
        return set(before.values())

    def by_secret(self, secret: bytes) -> ApiKey | None:
        digest = sha256(secret).digest()
        found: ApiKey | None = None
        # Every digest is compared, so that the time taken does not depend on which one matches.
        # The last of two equal secrets counts.
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def by_header(self, authorization: bytes) -> ApiKey | None:
        """The key of an Authorization header; None for a wrong scheme or an unknown secret."""
        digest = sha256(authorization).digest()
        key = self._by_header.get(digest)
        if key is None:
            scheme, _, secret = authorization.strip().partition(b" ")
            secret = secret.strip()
            if scheme.lower() != b"bearer" or not secret:
                return None
            key = self.by_secret(secret)
            if key is not None and len(self._by_header) < _REMEMBERED_HEADERS:
                self._by_header[digest] = key
        return key


def is_revoked(key: object) -> bool:
    """For what remembers whose it is; without keys, it is of none."""
    return isinstance(key, ApiKey) and key.revoked


def read_keys(settings: Settings) -> list[ApiKey]:
    """Raises ConfigError; errors never show a secret."""
    entries = parse_keys(settings.api_keys)
    path = settings.api_keys_file
    if path is not None:
        try:
            text = Path(path).read_bytes().decode("utf-8-sig", "surrogateescape")
        except OSError as error:
            raise ConfigError(f"TOPICS_API_KEYS_FILE: cannot read {path}: {error.strerror}") from None
        entries += parse_key_file(text)
    return [ApiKey(entry) for entry in entries]


LIFETIME_S = 60.0
MOST_TICKETS = 10_000
_BESIDE = (b"ticket=", b"last_event_id=")


class _Ticket(NamedTuple):
    key: ApiKey | None
    # Its digest: a path may be as long as a body.
    path: bytes
    ends_s: float


class Tickets:
    def __init__(self, clock_s: Callable[[], float] = time.monotonic, *, base: bytes = b"") -> None:
        """`base`: a path that may stand in front of what is asked for."""
        self._clock_s = clock_s
        self._base = base
        # By digest, in the order in which they end: a lookup tells an attacker nothing about a ticket.
        self._open: dict[bytes, _Ticket] = {}

    def issue(self, key: ApiKey | None, path: bytes) -> str:
        now = self._clock_s()
        self._forget_ended(now)
        if len(self._open) >= MOST_TICKETS:
            raise limit_reached("max_tickets", MOST_TICKETS)
        ticket = secrets.token_urlsafe(24)
        self._open[_digest(ticket)] = _Ticket(key, self._stream(path), now + LIFETIME_S)
        return ticket

    def redeem(self, ticket: str, target: bytes) -> ApiKey | None:
        """The key that it was made with; None when it is not valid for this target, or not any more."""
        self._forget_ended(self._clock_s())
        digest = _digest(ticket)
        found = self._open.get(digest)
        if found is None or found.path != self._stream(target):
            return None
        del self._open[digest]
        return None if found.key is None or found.key.revoked else found.key

    def _stream(self, target: bytes) -> bytes:
        return sha256(without_ticket(without_base(target, self._base))).digest()

    def _forget_ended(self, now: float) -> None:
        while self._open:
            digest = next(iter(self._open))
            if self._open[digest].ends_s > now:
                return
            del self._open[digest]


def without_ticket(target: bytes) -> bytes:
    """A path and its query, but for what a page adds when it opens the stream."""
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and not part.startswith(_BESIDE)]
    return path + b"?" + b"&".join(kept) if kept else path


def _digest(ticket: str) -> bytes:
    return sha256(ticket.encode("utf-8", "replace")).digest()


def unauthorized() -> ApiError:
    return ApiError("unauthorized", "a valid API key is needed")
