"""API keys: who may ask, for what, and under which names. Secrets are kept as digests only."""

import hmac
from hashlib import sha256

from topics.values import ConfigError

READ = 1
WRITE = 2
DELETE = 4
ADMIN = 8
ALL = READ | WRITE | DELETE | ADMIN

_SCOPES = {
    "read": READ,
    "r": READ,
    "write": WRITE,
    "w": WRITE,
    "delete": DELETE,
    "del": DELETE,
    "d": DELETE,
    "admin": ADMIN,
    "a": ADMIN,
    "rw": READ | WRITE,
}
# Every way of writing a valid header takes a place; this only has to hold the usual ones.
_REMEMBERED_HEADERS = 1024


class ApiKey:
    """One configured key. `id` is its place in the configuration: stable, and safe to log."""

    __slots__ = ("_prefixes", "digest", "id", "inflight", "scopes")

    def __init__(self, key_id: int, digest: bytes, scopes: int = ALL, prefixes: tuple[str, ...] = ()) -> None:
        self.id = key_id
        self.digest = digest
        self.scopes = scopes
        self._prefixes = prefixes
        # Ordinary requests of this key that are not answered yet.
        self.inflight = 0

    @property
    def prefixes(self) -> tuple[str, ...]:
        return self._prefixes

    def can(self, scopes: int) -> bool:
        return self.scopes & scopes == scopes

    def allows(self, name: str) -> bool:
        return not self._prefixes or name.startswith(self._prefixes)

    def __repr__(self) -> str:
        return f"<ApiKey {self.id}>"


class KeyRing:
    """All keys. Empty means that authentication is off."""

    def __init__(self, keys: list[ApiKey]) -> None:
        self.keys = keys
        self.enabled = bool(keys)
        # Keyed by the digest of the whole header: a lookup tells an attacker nothing about a secret.
        self._by_header: dict[bytes, ApiKey] = {}

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """Entries `secret[:scopes[:prefixes]]`, joined with commas. Errors never show a secret."""
        entries = [entry.strip() for entry in text.split(",")]
        return cls([_parse_entry(i, entry) for i, entry in enumerate(filter(None, entries), start=1)])

    def by_secret(self, secret: bytes) -> ApiKey | None:
        digest = sha256(secret).digest()
        found: ApiKey | None = None
        # Every digest is compared, so that the time taken does not depend on which one matches.
        # Of two equal ones, the last counts.
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


def _parse_entry(position: int, entry: str) -> ApiKey:
    secret, _, rest = entry.partition(":")
    scopes, _, prefixes = rest.partition(":")
    if not secret:
        raise ConfigError(f"TOPICS_API_KEYS: entry {position} has an empty secret")
    names = tuple(prefix for prefix in prefixes.split("|") if prefix)
    digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
    return ApiKey(position, digest, _parse_scopes(position, scopes), names)


def _parse_scopes(position: int, text: str) -> int:
    if not text:
        return ALL
    scopes = 0
    for word in text.split("+"):
        token = word.strip().lower()
        if not token:
            continue
        if token not in _SCOPES:
            # Not quoted: with a `:` inside a secret, this "scope" would be a part of it.
            raise ConfigError(f"TOPICS_API_KEYS: entry {position} has an unknown scope")
        scopes |= _SCOPES[token]
    if not scopes:
        raise ConfigError(f"TOPICS_API_KEYS: entry {position} has a scopes field without any scope")
    return scopes
