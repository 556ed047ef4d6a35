"""API keys as they are written down: `secret[:scopes[:prefixes]]`; in a file also with a name, and hashed.

Only digests of secrets leave this file, and errors never show a piece of what was written.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from topics.core.errors import ConfigError

SCOPES = ("read", "write", "delete", "admin")
SCOPES_BY_WORD = {
    "read": SCOPES[:1],
    "r": SCOPES[:1],
    "write": SCOPES[1:2],
    "w": SCOPES[1:2],
    "delete": SCOPES[2:3],
    "del": SCOPES[2:3],
    "d": SCOPES[2:3],
    "admin": SCOPES[3:],
    "a": SCOPES[3:],
    "rw": SCOPES[:2],
}
KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
OF_KEY_NAMES = "letters and digits, behind the first one also . _ @ and -, 64 in all at most"
_HASHED = re.compile(r"sha256:([0-9A-Fa-f]{64})(?::(.*))?", re.I)
_SHORT_NAME = 8
# No header can carry them. In a file they mean mostly that it was saved as UTF-16.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class KeyEntry:
    digest: bytes
    scopes: frozenset[str]
    # Empty: all names.
    prefixes: tuple[str, ...]
    # For logs: the one given, or the beginning of the digest.
    name: str


def parse_keys(text: str) -> list[KeyEntry]:
    """TOPICS_API_KEYS: entries without names, joined with commas."""
    entries = filter(None, (entry.strip() for entry in text.split(",")))
    return [_parse_plain(entry, f"TOPICS_API_KEYS: entry {n}") for n, entry in enumerate(entries, start=1)]


def parse_key_file(text: str) -> list[KeyEntry]:
    """TOPICS_API_KEYS_FILE: an entry a line. Blank lines and those that begin with `#` are skipped."""
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return [
        _parse_line(line, f"TOPICS_API_KEYS_FILE: line {number}")
        for number, line in lines
        if line and not line.startswith("#")
    ]


def _parse_line(line: str, where: str) -> KeyEntry:
    name = None
    if _CONTROL.search(line):
        raise ConfigError(f"{where} has control characters: the file is to be plain text in UTF-8")
    if "=" in line.partition(":")[0]:
        name, _, line = (part.strip() for part in line.partition("="))
        if not KEY_NAME.fullmatch(name):
            raise ConfigError(f"{where}: before `=` stands a name: {OF_KEY_NAMES}")
    if not line.lower().startswith("sha256:"):
        secret = line.partition(":")[0]
        # The end of a secret in base64 would be taken for all of it, and a remark for a part of it.
        if not secret.strip("=") or " " in secret:
            raise ConfigError(f"{where} has no secret, or one with a blank (before `=` stands a name)")
        return _parse_plain(line, where, name)
    hashed = _HASHED.fullmatch(line)
    if hashed is None:
        raise ConfigError(f"{where}: `sha256:` is followed by 64 hexadecimal digits")
    return _entry(bytes.fromhex(hashed[1]), hashed[2] or "", where, name)


def _parse_plain(entry: str, where: str, name: str | None = None) -> KeyEntry:
    secret, _, rest = entry.partition(":")
    if not secret:
        raise ConfigError(f"{where} has an empty secret")
    return _entry(sha256(secret.encode("utf-8", "surrogateescape")).digest(), rest, where, name)


def _entry(digest: bytes, rights: str, where: str, name: str | None) -> KeyEntry:
    words, _, prefixes = rights.partition(":")
    names = tuple(prefix for prefix in prefixes.split("|") if prefix)
    return KeyEntry(digest, _parse_scopes(words, where), names, name or digest.hex()[:_SHORT_NAME])


def _parse_scopes(text: str, where: str) -> frozenset[str]:
    if not text:
        return frozenset(SCOPES)
    words = [word.strip().lower() for word in text.split("+")]
    scopes = [SCOPES_BY_WORD.get(word) for word in words if word]
    if None in scopes:
        # Not quoted: with a `:` inside a secret, this "scope" would be a part of it.
        raise ConfigError(f"{where} has an unknown scope")
    if not scopes:
        raise ConfigError(f"{where} has a scopes field without any scope")
    return frozenset(scope for group in scopes for scope in group or ())
