"""The path under which a proxy shows the server: `/topics` of `https://example.org/topics/v0/health`.

A proxy may hand requests on with that path or without it. Both are understood, so probes that come past the
proxy go on as they are; what the server says of its own addresses has the path.
"""

import re

from topics.values import ConfigError

_BASE = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
# The first part of our own paths: under such a one, nobody could tell whether it is meant.
_OWN = ("/v0", "/healthz", "/readyz")


def parse_base_path(text: str) -> str:
    """Without a slash at its end; empty for none. Raises ConfigError for what cannot be such a path."""
    base = text.strip().rstrip("/")
    if not base:
        return ""
    if not _BASE.fullmatch(base):
        raise ConfigError(f"TOPICS_BASE_PATH: {text!r} is no path like /topics")
    if f"{base}/".startswith(tuple(f"{own}/" for own in _OWN)):
        raise ConfigError(f"TOPICS_BASE_PATH: {text!r} begins like a path of the server's own")
    return base


def without_base(target: bytes, base: bytes) -> bytes:
    """The target as it is without a proxy."""
    return target[len(base) :] if base and target.startswith(base + b"/") else target
