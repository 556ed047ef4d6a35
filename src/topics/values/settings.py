"""Configuration read once from the environment, and the fixed limits of the API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024

MAX_LIMIT = 1000
DEFAULT_LIMIT = 256
MAX_WAIT_MS = 30_000
MAX_TAG_BYTES = 256
MAX_NODE_BYTES = 128
MAX_META_BYTES = 16_384
MAX_META_KEYS = 64
MAX_BATCH_RECORDS = 10_000
# One Arrow record batch, which is committed whole, may be larger than a JSON write.
MAX_BULK_RECORDS = 100_000
MAX_RECORD_BYTES = MIB
MAX_IDEMPOTENCY_KEY_BYTES = 256
MAX_CLAIM = 1000
MAX_WATCH_TOPICS = 256
WATCH_SESSION_IDLE_MS = 300_000
DEFAULT_READ_BYTES = MIB
MAX_READ_BYTES = 8 * MIB
MAX_HOPS = 8
U64_MAX = 2**64 - 1
# Seqs are u64 on the wire; 2**63 of them per topic are plenty and let every column be a signed bigint.
MAX_SEQ = 2**63 - 1


def _cpu_shards() -> int:
    return min(os.cpu_count() or 1, 8)


@dataclass(slots=True, kw_only=True)
class Settings:
    """Every TOPICS_* variable, with the default that applies when it is unset or unparsable."""

    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str | None = None
    api_keys: str = ""
    allow_insecure_no_auth: bool = False
    probe_auth: bool = False
    data_dir: str = "./topics-data"
    max_body_bytes: int = 64 * MIB
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1_000
    max_inflight_per_key: int = 1_000
    max_total_bytes: int = 0
    max_connections: int = 20_000
    wal_shards: int = field(default_factory=_cpu_shards)
    cold_dir: str | None = None
    segment_max_events: int = 10_000
    segment_max_bytes: int = 64 * MIB
    segment_max_age_ms: int = 3_600_000
    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0
    hot_bytes: int = 256 * MIB
    seq_base: int = 1
    test_min_heartbeat_ms: int = 1_000
    log_format: str = "human"
    log_level: str = "info"
    access_log: bool = False
    slow_request_ms: int = 1_000
    tracing: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Settings:
        """Unparsable numbers fall back to their default; booleans are true only for `1` and `true`."""
        read = _Environment(env)
        settings = cls()
        for name in ("host", "api_keys", "data_dir"):
            setattr(settings, name, read.text(name, getattr(settings, name)))
        for name in ("port_file", "cold_dir"):
            setattr(settings, name, read.text(name, "") or None)
        for name in ("allow_insecure_no_auth", "probe_auth", "access_log", "tracing"):
            setattr(settings, name, read.flag(name))
        for name, words in _CHOICES.items():
            setattr(settings, name, read.choice(name, words, getattr(settings, name)))
        for name in _UNSIGNED:
            setattr(settings, name, read.unsigned(name, getattr(settings, name)))
        for name in _POSITIVE:
            setattr(settings, name, read.unsigned(name, getattr(settings, name)) or getattr(settings, name))
        shortest_ms = read.unsigned("test_min_heartbeat_ms", settings.test_min_heartbeat_ms)
        settings.test_min_heartbeat_ms = min(max(shortest_ms, 1), settings.test_min_heartbeat_ms)
        if settings.port > 65535:
            settings.port = 4000
        return settings


_CHOICES = {
    "log_format": ("human", "json"),
    "log_level": ("debug", "info", "warning", "error"),
}
_UNSIGNED = (
    "port",
    "max_topics",
    "max_routers",
    "max_watch_sessions",
    "max_sse_connections",
    "max_sse_connections_per_key",
    "max_inflight_per_key",
    "max_total_bytes",
    "max_connections",
    "hot_retain_segments",
    "hot_retain_bytes",
    "slow_request_ms",
)
_POSITIVE = (
    "max_body_bytes",
    "wal_shards",
    "segment_max_events",
    "segment_max_bytes",
    "segment_max_age_ms",
    "hot_bytes",
    "seq_base",
)


class _Environment:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def text(self, name: str, default: str) -> str:
        return self._env.get("TOPICS_" + name.upper(), default)

    def choice(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self.text(name, "").strip().lower()
        return value if value in words else default

    def flag(self, name: str) -> bool:
        return self.text(name, "") in ("1", "true")

    def unsigned(self, name: str, default: int) -> int:
        value = self.text(name, "").strip()
        # isdecimal() alone would accept other scripts' digits, which no operator means here.
        parsed = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else -1
        return parsed if 0 <= parsed <= MAX_SEQ else default
