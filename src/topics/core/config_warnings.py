"""Configs that are accepted and cannot have the effect their writer expects: sentences that name fields."""

from topics.core.config import DEFAULT_CONFIG, TopicConfig

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
