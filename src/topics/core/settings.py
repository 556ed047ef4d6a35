"""The settings of a server, each with its default and what it may be, and the fixed limits of the API.

A setting `max_topics` is `TOPICS_MAX_TOPICS` in the environment and `max_topics` in topics.toml. This is the
only list: `settings_reader` reads by it, and a test holds the table in docs/configuration.md against it.
"""

import os
from dataclasses import dataclass, field
from typing import Any

MIB = 1024 * 1024

MAX_LIMIT = 1000
DEFAULT_LIMIT = 256
MAX_WAIT_MS = 30_000
MAX_META_BYTES = 16_384
MAX_META_KEYS = 64
MAX_BATCH_RECORDS = 10_000
# One Arrow record batch, which is committed whole, may be larger than a JSON write.
MAX_BULK_RECORDS = 100_000
MAX_RECORD_BYTES = MIB
MAX_IDEMPOTENCY_KEY_BYTES = 256
# Seqs in one request: to acknowledge, to give back, to extend, to delete.
MAX_CLAIM = 1000
# Nodes whose records a reader may leave out.
MAX_NODES = 1000
MAX_WATCH_TOPICS = 256
WATCH_SESSION_IDLE_MS = 300_000
DEFAULT_READ_BYTES = MIB
MAX_READ_BYTES = 8 * MIB
MAX_HOPS = 8
MIN_HEARTBEAT_MS = 1_000
U64_MAX = 2**64 - 1
# The epoch of a position that belongs to no life of a topic that anybody could name; no topic has it.
NO_LIFE = U64_MAX
# Seqs are u64 on the wire; 2**63 of them per topic are plenty and let every column be a signed bigint.
MAX_SEQ = 2**63 - 1
_LARGEST_RUN_BYTES = 1024 * MIB


def _cpu_shards() -> int:
    return min(os.cpu_count() or 1, 8)


def _number(default: int, least: int = 0, most: int = MAX_SEQ) -> Any:
    return field(default=default, metadata={"least": least, "most": most})


def _choice(*words: str) -> Any:
    """The first one is the default."""
    return field(default=words[0], metadata={"words": words})


@dataclass(slots=True, kw_only=True)
class Settings:
    """What kind of value a setting takes is told by its type, and by what stands beside its default."""

    host: str = "127.0.0.1"
    port: int = _number(4000, most=65535)
    port_file: str | None = None
    config: str | None = None
    # Never shown.
    api_keys: str = field(default="", repr=False)
    api_keys_file: str | None = None
    allow_insecure_no_auth: bool = False
    probe_auth: bool = False
    # Both separated by commas.
    allowed_hosts: str = ""
    cors_origins: str = ""
    # Where a proxy shows the server.
    base_path: str = ""
    # PEM files; both or none.
    tls_cert: str | None = None
    tls_key: str | None = None
    console: bool = True
    data_dir: str = "./topics-data"
    cold_dir: str | None = None
    # What requests name and no route knows; the old way is to pass over it.
    unknown_keys: str = _choice("refuse", "ignore")
    max_body_bytes: int = _number(64 * MIB, least=1)
    max_topics: int = _number(100_000)
    max_routers: int = _number(10_000)
    max_watch_sessions: int = _number(10_000)
    max_sse_connections: int = _number(10_000)
    max_sse_connections_per_key: int = _number(1_000)
    max_inflight_per_key: int = _number(1_000)
    max_total_bytes: int = _number(0)
    # None: chosen by the server.
    disk_reserve_bytes: int | None = field(default=None, metadata={"least": 0, "most": MAX_SEQ})
    max_connections: int = _number(20_000)
    max_idempotency_keys: int = _number(1_000_000, least=1)
    max_idempotency_keys_per_topic: int = _number(500_000, least=1)
    seq_base: int = _number(1, least=1)
    segment_max_events: int = _number(10_000, least=1)
    # 0: runs are not sealed because of their size, or because of their age.
    segment_max_bytes: int = _number(64 * MIB)
    segment_max_age_ms: int = _number(3_600_000)
    hot_bytes: int = _number(256 * MIB, least=1)
    hot_retain_segments: int = _number(4)
    hot_retain_bytes: int = _number(0)
    wal_shards: int = field(default_factory=_cpu_shards, metadata={"least": 1, "most": MAX_SEQ})
    log_format: str = _choice("human", "json")
    log_level: str = _choice("info", "debug", "warning", "error")
    log_file: str | None = None
    access_log: bool = False
    slow_request_ms: int = _number(1_000)
    tracing: bool = False
    test_min_heartbeat_ms: int = _number(MIN_HEARTBEAT_MS)

    def __post_init__(self) -> None:
        # It lowers the minimum and never raises it.
        self.test_min_heartbeat_ms = min(max(self.test_min_heartbeat_ms, 1), MIN_HEARTBEAT_MS)

    @property
    def seal_bytes(self) -> int:
        """From here on a run is full, whatever was asked for: places in it are numbers of 32 bits."""
        return min(self.segment_max_bytes or _LARGEST_RUN_BYTES, _LARGEST_RUN_BYTES)

    @property
    def seal_age_ms(self) -> int:
        return self.segment_max_age_ms or MAX_SEQ
