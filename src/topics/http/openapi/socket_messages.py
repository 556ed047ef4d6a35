"""What is said over the WebSocket, for the OpenAPI document, which has no words of its own for that."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_ANY: Json = {}
_TEXT: Json = {"type": "string"}
_SEQ: Json = {"type": "integer", "minimum": 0}
_FLAG: Json = {"type": "boolean"}
_RECORDS: Json = {"type": "array", "items": {"$ref": "#/components/schemas/Record"}}
_STARTS: Json = {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Start"}}
_WATCHED: Json = {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/WatchedTopic"}}
_NAMES: Json = {"type": "array", "items": _TEXT}

# From the client; what else a publish may hold is a write.
COMMANDS: dict[str, Json] = {
    "subscribe": {
        "topic": _TEXT,
        "from_seq": _SEQ,
        "tail": _FLAG,
        "topics": _STARTS,
        "node": {"anyOf": [_TEXT, _NAMES]},
        "limit": _SEQ,
        "max_batch_bytes": _SEQ,
        "include_data": _FLAG,
        "include_tags": _FLAG,
        "include_meta": _FLAG,
        "lenient": _FLAG,
    },
    "unsubscribe": {"topic": _TEXT, "topics": _NAMES},
    "publish": {"topic": _TEXT, "return_seqs": _FLAG},
    "ping": {},
}

EVENTS: dict[str, Json] = {
    "subscribed": {"request_id": _ANY, "topics": _WATCHED},
    "unsubscribed": {"request_id": _ANY, "topics": _NAMES},
    "record": {"topic": _TEXT, "from_seq": _SEQ, "to_seq": _SEQ, "head_seq": _SEQ, "records": _RECORDS},
    "tombstone": {
        "topic": _TEXT,
        "reason": _TEXT,
        "gap_from": _SEQ,
        "gap_to": _SEQ,
        "earliest_seq": _SEQ,
        "head_seq": _SEQ,
    },
    "caught_up": {"topic": _TEXT, "head_seq": _SEQ},
    "topic_deleted": {"topic": _TEXT, "head_seq": _SEQ, "reason": _TEXT},
    "pong": {"request_id": _ANY},
    "error": {"request_id": _ANY, "code": _TEXT, "message": _TEXT},
}


def messages() -> Json:
    """Schemas by direction and by `op`."""
    sent = {op: _message(op, {"request_id": _ANY, **fields}) for op, fields in COMMANDS.items()}
    write: Json = {"$ref": "#/components/schemas/WriteBody"}
    sent["publish"] = {"allOf": [write, sent["publish"]]}
    received = {op: _message(op, fields, required=True) for op, fields in EVENTS.items()}
    appended: Json = {"$ref": "#/components/schemas/Appended"}
    received["ack"] = {"allOf": [appended, _message("ack", {"request_id": _ANY}, required=True)]}
    return {"client": sent, "server": received}


def _message(op: str, fields: Json, *, required: bool = False) -> Json:
    properties = {"op": {"const": op}, **fields}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required else ["op"],
    }
