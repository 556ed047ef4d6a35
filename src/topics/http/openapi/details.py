"""What models cannot say about requests and errors: ranges, lengths, and the details that go with a code."""

from __future__ import annotations

from typing import Any

from topics.http.routes.watch import HEARTBEAT_MS_RANGE
from topics.values.config import CLAIM_JITTER_MS_MAX, LEASE_MS_RANGE, PRIORITY_LIMIT
from topics.values.settings import (
    DEFAULT_LIMIT,
    MAX_CLAIM,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_LIMIT,
    MAX_NODE_BYTES,
    MAX_READ_BYTES,
    MAX_TAG_BYTES,
    MAX_WAIT_MS,
    MAX_WATCH_TOPICS,
    U64_MAX,
)

Json = dict[str, Any]

_U64: Json = {"minimum": 0, "maximum": U64_MAX}
_NODE: Json = {"minLength": 1, "maxLength": MAX_NODE_BYTES}
_HELD: dict[str, Json] = {
    "node": _NODE,
    "seqs": {"maxItems": MAX_CLAIM, "items": {"type": "integer", **_U64}},
    "lease_ids": {"items": {"type": "string", "pattern": "^(lease_[0-9a-fA-F]+)?$"}},
}


_MATCH: Json = {
    "description": "A tag, the beginning of tags followed by `*`, or either one as a triple.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"enum": ["Eq", "Glob"]}, {"type": "string"}],
            "minItems": 3,
            "maxItems": 3,
        },
        {"type": "null"},
    ],
}


def _limited(maximum: int, *, minimum: int = 0, zero: int | None = None) -> Json:
    """Larger values are not refused: they count as the maximum."""
    text = f"Limited to {minimum} to {maximum}."
    return {"minimum": 0, "description": text if zero is None else f"At most {maximum}; 0 means {zero}."}


_LIMIT = _limited(MAX_LIMIT, zero=DEFAULT_LIMIT)
_LEASE = _limited(LEASE_MS_RANGE[1], minimum=LEASE_MS_RANGE[0])

# By model and field. Lengths are in bytes of UTF-8, so a schema's characters are only an upper bound.
REFINED: dict[str, dict[str, Json]] = {
    "ConfigBody": {
        "ttl_ms": _U64,
        "cap_records": _U64,
        "cap_bytes": _U64,
        "idempotency_window_ms": _U64,
        "max_deliveries": _U64,
        "lease_ms": _LEASE,
        "claim_jitter_ms": _limited(CLAIM_JITTER_MS_MAX),
        "priority": {"description": f"Limited to {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}."},
    },
    "RecordBody": {"tag": {"maxLength": MAX_TAG_BYTES}, "node": {"maxLength": MAX_NODE_BYTES}},
    "WriteBody": {
        "node": {"maxLength": MAX_NODE_BYTES},
        "idempotency_key": {"maxLength": MAX_IDEMPOTENCY_KEY_BYTES},
    },
    "DiffBody": {
        "from_seq": _U64,
        "limit": _LIMIT,
        "wait_ms": _limited(MAX_WAIT_MS),
        "max_batch_bytes": {"minimum": 0, "description": f"At most {MAX_READ_BYTES}; 0 means the default."},
        "epoch": _U64,
    },
    "DeleteBody": {"before_seq": _U64, "match": _MATCH},
    "RouterBody": {"filter": _MATCH},
    "ClaimBody": {"node": _NODE, "max": _limited(MAX_CLAIM, zero=1), "lease_ms": _LEASE},
    "HeldBody": _HELD,
    "NackBody": _HELD | {"delay_ms": {"minimum": 0}},
    "ExtendBody": _HELD | {"lease_ms": _LEASE},
    "WatchBody": {
        "topics": {"minProperties": 1, "maxProperties": MAX_WATCH_TOPICS},
        "limit": _LIMIT,
        "max_batch_bytes": {"minimum": 0},
        "heartbeat_ms": _limited(HEARTBEAT_MS_RANGE[1], minimum=HEARTBEAT_MS_RANGE[0]),
    },
    "Start": {"from_seq": _U64},
    "ScanBody": {
        "from_seq": _U64,
        "to_seq": _U64,
        "columns": {"minItems": 1, "items": {"enum": ["seq", "ts", "node", "tag", "data", "meta"]}},
        "tag": _MATCH,
        "since_ts": _U64,
        "until_ts": _U64,
        "max_records": _U64,
        "epoch": _U64,
    },
    "CursorBody": {"seq": _U64, "epoch": _U64},
    "IdentityBody": {"batch": _U64},
}

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
# A bulk append that is refused on the way names the record batches that were committed before.
_BATCHES: dict[str, Json] = {
    "batches": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "first_seq": _NUMBER,
                "last_seq": _NUMBER,
                "count": _NUMBER,
                "deduped": {"type": "boolean"},
            },
        },
    }
}

# What `detail` may hold, by code.
DETAILS: dict[str, dict[str, Json]] = {
    "forbidden": {"topic": _TEXT},
    "topic_not_found": {"topic": _TEXT, **_BATCHES},
    "invalid_request": _BATCHES,
    "record_too_large": _BATCHES,
    "internal": _BATCHES,
    "not_found": {"consumer": _TEXT, "stage": _TEXT},
    "stage_conflict": {"id": _TEXT, "batch": _NUMBER},
    "router_not_found": {"router": _TEXT},
    "not_a_queue": {"topic": _TEXT},
    "router_cycle": {"cycle": {"type": "array", "items": _TEXT}},
    "topic_exists_incompatible": {
        "topic": _TEXT,
        "existing_type": _TEXT,
        "requested_type": _TEXT,
        "router": _TEXT,
        "reason": {"enum": ["router_dest_fan_in", "router_repoint_forbidden"]},
        "existing_source": _TEXT,
        "existing_dest": _TEXT,
    },
    "topic_not_empty": {"topic": _TEXT, "count": _NUMBER},
    "topic_full": {
        "topic": _TEXT,
        "cap_records": _NUMBER,
        "cap_bytes": _NUMBER,
        "head_seq": _NUMBER,
        "earliest_seq": _NUMBER,
        **_BATCHES,
    },
    "throttled": {"limit": _TEXT, "max": _NUMBER, "retry_after_ms": _NUMBER, **_BATCHES},
    "not_ready": {"replay_progress": {"type": "number", "minimum": 0, "maximum": 1}},
}
