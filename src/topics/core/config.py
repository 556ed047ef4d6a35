"""A topic's seventeen settings: parsed strictly, clamped, always echoed whole.

`config_warnings` describes settings that are accepted and cannot have the effect that their writer
expects.
"""

from typing import Annotated, Any, Literal

import msgspec

from topics.core.errors import invalid
from topics.core.names import is_topic_name
from topics.core.strict import StrictDecoder

FRESH = 500
HALF_LIFE_MS = 30_000
FORGOTTEN_MS = 300_000


TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
CLASSES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")

LEASE_MS_RANGE = (100, 86_400_000)
CLAIM_JITTER_MS_MAX = 5000
PRIORITY_LIMIT = 1000
_U64_MAX = 2**64 - 1
_MOST_SHOWN = 1024
_NAME_OR_NULL = msgspec.Meta(extra_json_schema={"anyOf": [{"type": "string"}, {"type": "null"}]})


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    type: TopicType = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = "old"
    durable: bool = False
    durability: Durability = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def is_queue(self) -> bool:
        return self.type == "queue"


class ConfigBody(TopicConfig, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The config as clients write it: the class may be left to `durable`."""

    durability: Durability | None = None  # type: ignore[assignment]
    # Taken as anything, because what is wrong with it is told together with it.
    dead_letter: Annotated[Any, _NAME_OR_NULL] = None


_UNSIGNED = [field.name for field in msgspec.structs.fields(TopicConfig) if field.type is int]
# Pulled into range however large, never refused for it; priority likewise, in both directions.
_CLAMPED = ("lease_ms", "claim_jitter_ms")
_decoder = StrictDecoder(ConfigBody)
DEFAULT_CONFIG = TopicConfig()


def parse_config(body: bytes) -> TopicConfig:
    """A config object as JSON; raises `invalid_request` on any wrong type, word or range."""
    return resolve_config(_decoder.read(body))


def resolve_config(body: ConfigBody) -> TopicConfig:
    """What was left out and what was out of range has its value."""
    for name in _UNSIGNED:
        value: int = getattr(body, name)
        if value < 0 or (value > _U64_MAX and name not in _CLAMPED):
            raise invalid(f"{name} must be an unsigned 64-bit integer")
    priority = body.priority
    if priority is not None:
        priority = min(max(priority, -PRIORITY_LIMIT), PRIORITY_LIMIT)
    wanted = body.dead_letter
    if wanted is not None and not (isinstance(wanted, str) and is_topic_name(wanted)):
        raise invalid("dead_letter must be a valid topic name", {"dead_letter": _shortened(wanted)})
    durability: Durability = body.durability or ("fsync" if body.durable else "disk")
    low, high = LEASE_MS_RANGE
    resolved = {
        "durability": durability,
        "durable": durability == "fsync",
        "priority": priority,
        "lease_ms": min(max(body.lease_ms, low), high),
        "claim_jitter_ms": min(body.claim_jitter_ms, CLAIM_JITTER_MS_MAX),
    }
    return TopicConfig(**(config_to_json(body) | resolved))


def _shortened(value: Any) -> Any:
    """As it was sent, or as text of which there is not too much."""
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def check_config(config: TopicConfig, topic: str) -> TopicConfig:
    """The one rule that needs the topic's own name."""
    if config.is_queue and config.dead_letter == topic:
        raise invalid("dead_letter must name another topic than the queue itself", {"dead_letter": topic})
    return config


def config_to_json(config: TopicConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def effective_priority(config: TopicConfig, last_read_ms: int | None, now_ms: int) -> int:
    if config.priority is not None:
        return min(max(config.priority, -PRIORITY_LIMIT), PRIORITY_LIMIT)
    if not config.auto_priority or last_read_ms is None:
        return 0
    idle_ms = max(now_ms - last_read_ms, 0)
    if idle_ms >= FORGOTTEN_MS:
        return 0
    # Halves go up; Python's own rounding would take them to the even neighbour.
    return int(FRESH * 2 ** (-idle_ms / HALF_LIFE_MS) + 0.5)


_QUEUE_FIELDS = ("lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable")


def config_warnings(config: TopicConfig) -> list[str]:
    """What there is to say about the config alone, whatever the topic holds."""
    warnings = _of_a_queue(config) if config.is_queue else _of_a_log(config)
    if config.discard == "reject" and not (config.cap_records or config.cap_bytes):
        warnings.append("discard has no effect without cap_records or cap_bytes: nothing is ever too much.")
    return warnings


def _of_a_log(config: TopicConfig) -> list[str]:
    # Answers echo all fields, so a default that was sent back says nothing about what its writer expects.
    idle = [name for name in _QUEUE_FIELDS if getattr(config, name) != getattr(DEFAULT_CONFIG, name)]
    return [f"{name} has no effect on a topic of type log: only queues lend out jobs." for name in idle]


def _of_a_queue(config: TopicConfig) -> list[str]:
    warnings = []
    if config.max_deliveries and config.dead_letter is None:
        warnings.append("max_deliveries has no effect without dead_letter: jobs come back for ever.")
    if config.dead_letter is not None and not config.max_deliveries:
        warnings.append("dead_letter has no effect without max_deliveries: jobs come back for ever.")
    if config.ttl_ms and config.ttl_ms < config.lease_ms:
        warnings.append(
            f"ttl_ms ({config.ttl_ms}) is shorter than lease_ms ({config.lease_ms}): "
            "a job may be gone while a worker holds it."
        )
    return warnings


def eviction_warning(config: TopicConfig, evicted: int) -> str:
    """The caps are below what was live."""
    caps = [f"{name} ({cap})" for name in ("cap_records", "cap_bytes") if (cap := getattr(config, name))]
    records = (
        "1 record that was live is gone" if evicted == 1 else f"{evicted} records that were live are gone"
    )
    return f"{records}: there were more than {' and '.join(caps)} allow{'s' * (len(caps) == 1)}."
