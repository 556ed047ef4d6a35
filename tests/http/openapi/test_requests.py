"""What the document says of requests is what handlers decode: fields, types, defaults and limits."""

from __future__ import annotations

from typing import Any

from tests.http.openapi.described import Described
from topics.codec.append_body import AppendBody, Line, PublishBody
from topics.core.config import LEASE_MS_RANGE
from topics.core.settings import (
    DEFAULT_LIMIT,
    MAX_BATCH_RECORDS,
    MAX_CLAIM,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_LIMIT,
    MAX_META_KEYS,
    MAX_NODES,
    MAX_WATCH_TOPICS,
    U64_MAX,
)
from topics.http.routes import socket
from topics.http.routes.fields import DEFAULT_PAGE, MAX_PAGE
from topics.log import MAX_BUCKETS

Json = dict[str, Any]

# Numbers larger than these are no mistake, so the schema has no maximum: they are named in words.
CLAMPED = {
    "lease_ms": "Limited to {} to {}.".format(*LEASE_MS_RANGE),
    "limit": f"At most {MAX_LIMIT}; 0 means {DEFAULT_LIMIT}.",
}
U64: Json = {"minimum": 0, "maximum": U64_MAX}
NODES: Json = {"items": {"type": "string"}, "maxItems": MAX_NODES}
NODE: Json = {"minLength": 1, "maxLength": 128}
# By body and field; lengths are in bytes of UTF-8, so a schema's characters are only an upper bound.
LIMITS: dict[str, dict[str, Json]] = {
    "RecordBody": {
        "tag": {"maxLength": 256},
        "node": {"maxLength": 128},
        "meta": {"maxProperties": MAX_META_KEYS},
    },
    "WriteBody": {
        "records": {"minItems": 1, "maxItems": MAX_BATCH_RECORDS},
        "node": {"maxLength": 128},
        "idempotency_key": {"maxLength": MAX_IDEMPOTENCY_KEY_BYTES},
    },
}
# The same of parameters.
PARAMETER_LIMITS: dict[str, Json] = {
    "Idempotency-Key": {"maxLength": MAX_IDEMPOTENCY_KEY_BYTES},
    "idempotency_key": {"maxLength": MAX_IDEMPOTENCY_KEY_BYTES},
    "page_size": {"minimum": 0, "default": DEFAULT_PAGE, "maximum": MAX_PAGE},
    "node": NODE,
    "max": {"minimum": 0, "default": 1, "maximum": MAX_CLAIM},
    "lease_ms": {"minimum": 0, "maximum": LEASE_MS_RANGE[1]},
    "for": {"enum": ["writes"]},
    "buckets": {"minimum": 1, "maximum": MAX_BUCKETS},
    "from_seq": {**U64, "default": 0},
    "limit": {"minimum": 0},
    "last": {"minimum": 0},
    "wait_ms": {"minimum": 0, "default": 0},
    **dict.fromkeys(("epoch", "since", "until", "from", "to"), U64),
    # Of an operation, where the same name means something else elsewhere.
    "records.node": NODES,
    "type": {"enum": ["log", "queue"]},
    "tail.node": NODES,
    "tail.topic": {"items": {"type": "string"}, "minItems": 1, "maxItems": MAX_WATCH_TOPICS},
    "heartbeat_ms": {"minimum": 0},
}
LIMITING = {f"{most}{what}" for most in ("min", "max") for what in ("imum", "Length", "Items", "Properties")}


def test_numbers_and_flags_are_never_null_but_for_a_few(described: Described) -> None:
    """Who sends null for a limit has forgotten to fill it in, and must not get everything for it."""
    scalars = {"integer", "boolean"}
    bodies = {name: schema for name, schema in described.schemas.items() if name.endswith("Body")}
    bodies |= described.by_route["GET", "/v0/ws"]["x-websocket-messages"]["client"] | {
        "Start": described.schemas["Start"]
    }
    nullable = {
        (name, field)
        for name, schema in bodies.items()
        for field, kind in schema["properties"].items()
        if "null" in (kinds := {each.get("type") for each in kind.get("anyOf", ())}) and kinds & scalars
    }
    assert nullable == {
        ("ClaimBody", "lease_ms"),
        ("ConfigBody", "priority"),
        ("DeleteBody", "before_seq"),
        ("WriteBody", "create"),
        ("publish", "create"),
    }


def test_a_write_has_the_fields_that_are_decoded(described: Described) -> None:
    assert set(described.schemas["WriteBody"]["properties"]) == set(AppendBody.__struct_encode_fields__)
    taken = {name for name in Line.__struct_encode_fields__ if not name.startswith("$")}
    assert set(described.schemas["RecordBody"]["properties"]) == taken
    assert described.schemas["WriteBody"]["additionalProperties"] is False
    assert described.schemas["RecordBody"]["additionalProperties"] is False


def test_socket_commands_have_the_fields_that_are_decoded(described: Described) -> None:
    commands = described.by_route["GET", "/v0/ws"]["x-websocket-messages"]["client"]
    assert set(commands) == {"subscribe", "unsubscribe", "publish", "ping"}
    for told, command in (
        (commands["ping"], socket._Ping),
        (commands["subscribe"], socket._Subscribe),
        (commands["unsubscribe"], socket._Unsubscribe),
        (commands["publish"], PublishBody),
    ):
        assert set(told["properties"]) == set(command.__struct_encode_fields__)
        assert told["additionalProperties"] is False
    write = described.schemas["WriteBody"]["properties"]
    assert {name: commands["publish"]["properties"][name] for name in write} == write


# --- limits ---------------------------------------------------------------------------------------------


def limits(schema: Json) -> Json:
    """Of what may be besides null: its limits, and words with numbers in them."""
    kind = next(kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null")
    told = {name: value for name, value in kind.items() if name in LIMITING}
    items = kind.get("items", {})
    if any(name in LIMITING for name in items):
        told["items"] = items
    if any(letter.isdigit() for letter in kind.get("description", "")):
        told["description"] = kind["description"]
    return told


def test_limits_of_appends_are_those_of_the_settings(described: Described) -> None:
    for name in LIMITS:
        fields = described.schemas[name]["properties"].items()
        told = {field: found for field, schema in fields if (found := limits(schema))}
        assert told == LIMITS[name], name


def test_limits_of_parameters_are_those_of_the_settings(described: Described) -> None:
    for operation in described.by_route.values():
        for parameter in described.parameters(operation, "query") + described.parameters(operation, "header"):
            schema, name = parameter["schema"], parameter["name"]
            told = {key: value for key, value in schema.items() if key != "type"}
            if schema["type"] == "boolean":
                assert list(told) == ["default"], name
            else:
                own = PARAMETER_LIMITS.get(f"{operation['operationId']}.{name}")
                assert told == (PARAMETER_LIMITS.get(name, {}) if own is None else own), name
    work = described.parameters(described.by_route["GET", "/v0/topics/:topic/work"], "query")
    assert CLAMPED["lease_ms"] in [parameter["description"] for parameter in work]
