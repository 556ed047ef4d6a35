"""Configuration read once from the environment, and the fixed limits of the API."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

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
MIN_HEARTBEAT_MS = 1_000
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
    test_min_heartbeat_ms: int = MIN_HEARTBEAT_MS
    log_format: str = "human"
    log_level: str = "info"
    access_log: bool = False
    slow_request_ms: int = 1_000
    tracing: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """Unparsable numbers fall back to their default; booleans are true only for `1` and `true`."""
        settings = cls()
        for known in fields(cls):
            text = env.get("TOPICS_" + known.name.upper())
            if text is not None:
                setattr(settings, known.name, _parsed(known.name, text, getattr(settings, known.name)))
        settings.test_min_heartbeat_ms = min(max(settings.test_min_heartbeat_ms, 1), MIN_HEARTBEAT_MS)
        if settings.port > 65535:
            settings.port = 4000
        return settings


_CHOICES = {
    "log_format": ("human", "json"),
    "log_level": ("debug", "info", "warning", "error"),
}
_POSITIVE = (
    "max_body_bytes",
    "wal_shards",
    "segment_max_events",
    "segment_max_bytes",
    "segment_max_age_ms",
    "hot_bytes",
    "seq_base",
)


def _parsed(name: str, text: str, default: object) -> object:
    """A value like the default, which is also what stands for one that cannot be read."""
    if name in _CHOICES:
        word = text.strip().lower()
        return word if word in _CHOICES[name] else default
    if isinstance(default, bool):
        return text in ("1", "true")
    if isinstance(default, int):
        digits = text.strip()
        # isdecimal() alone would accept other scripts' digits, which no operator means here.
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else -1
        return number if (name in _POSITIVE) <= number <= MAX_SEQ else default
    return text if default is not None else text or None
