"""What the document says of requests is what handlers decode: fields, types, defaults and limits."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from typing import Any

import msgspec

import topics.http.routes
from tests.http.openapi.described import JSON, Described
from tests.http.streaming import RunningApp
from topics.codec.append_body import AppendBody, Line, PublishBody
from topics.flow.pipelines import MAX_WHY_BYTES
from topics.http.routes import socket
from topics.http.routes.fields import DEFAULT_PAGE, MAX_PAGE
from topics.http.routes.jobs.queues import MAX_ERROR_BYTES
from topics.http.routes.subscriptions import HEARTBEAT_MS_RANGE
from topics.log import MAX_BUCKETS
from topics.values import StrictDecoder
from topics.values.config import CLAIM_JITTER_MS_MAX, LEASE_MS_RANGE, PRIORITY_LIMIT, ConfigBody, TopicConfig
from topics.values.settings import (
    DEFAULT_LIMIT,
    MAX_BATCH_RECORDS,
    MAX_CLAIM,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_LIMIT,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_NODES,
    MAX_READ_BYTES,
    MAX_TAG_BYTES,
    MAX_WAIT_MS,
    MAX_WATCH_TOPICS,
    U64_MAX,
)

Json = dict[str, Any]

# Numbers larger than these are no mistake, so the schema has no maximum: they are named in words.
CLAMPED = {
    "lease_ms": "Limited to {} to {}.".format(*LEASE_MS_RANGE),
    "limit": f"At most {MAX_LIMIT}; 0 means {DEFAULT_LIMIT}.",
}
U64: Json = {"minimum": 0, "maximum": U64_MAX}
LEASE: Json = {"minimum": 0, "description": CLAMPED["lease_ms"]}
LIMIT: Json = {"minimum": 0, "description": CLAMPED["limit"]}
NODES: Json = {"items": {"type": "string"}, "maxItems": MAX_NODES}
NODE: Json = {"minLength": 1, "maxLength": MAX_NODE_BYTES}
HELD: Json = {"node": NODE, "seqs": {"maxItems": MAX_CLAIM, "items": {"type": "integer", **U64}}}
# By body and field; lengths are in bytes of UTF-8, so a schema's characters are only an upper bound.
LIMITS: dict[str, dict[str, Json]] = {
    "PipelineBody": {"why": {"description": f"At most {MAX_WHY_BYTES} bytes."}},
    "ConfigBody": {
        **dict.fromkeys(
            ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"), U64
        ),
        "lease_ms": LEASE,
        "claim_jitter_ms": {"minimum": 0, "description": f"Limited to 0 to {CLAIM_JITTER_MS_MAX}."},
        "priority": {"description": f"Limited to {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}."},
    },
    "RecordBody": {
        "tag": {"maxLength": MAX_TAG_BYTES},
        "node": {"maxLength": MAX_NODE_BYTES},
        "meta": {"maxProperties": MAX_META_KEYS},
    },
    "WriteBody": {
        "records": {"minItems": 1, "maxItems": MAX_BATCH_RECORDS},
        "node": {"maxLength": MAX_NODE_BYTES},
        "idempotency_key": {"maxLength": MAX_IDEMPOTENCY_KEY_BYTES},
    },
    "DiffBody": {
        "from_seq": U64,
        "limit": LIMIT,
        "wait_ms": {"minimum": 0, "description": f"Limited to 0 to {MAX_WAIT_MS}."},
        "max_batch_bytes": {"minimum": 0, "description": f"At most {MAX_READ_BYTES}; 0 means the default."},
        "epoch": U64,
    },
    "DeleteBody": {
        "before_seq": U64,
        "seqs": {"minItems": 1, "maxItems": MAX_CLAIM, "items": {"type": "integer", **U64}},
    },
    "ClaimBody": {
        "node": NODE,
        "max": {"minimum": 0, "description": f"At most {MAX_CLAIM}; 0 means 1."},
        "lease_ms": LEASE,
        "wait_ms": {
            "minimum": 0,
            "description": f"How long to wait for a job. Limited to 0 to {MAX_WAIT_MS}.",
        },
    },
    "HeldBody": HELD,
    "NackBody": {
        **HELD,
        "delay_ms": {"minimum": 0},
        "error": {
            "maxLength": MAX_ERROR_BYTES,
            "description": f"At most {MAX_ERROR_BYTES} bytes; kept with the job and its dead letter.",
        },
    },
    "RedriveBody": {"max": U64},
    "ExtendBody": {**HELD, "lease_ms": LEASE},
    "WatchBody": {
        "topics": {"minProperties": 1, "maxProperties": MAX_WATCH_TOPICS},
        "limit": LIMIT,
        "max_batch_bytes": {"minimum": 0},
        "heartbeat_ms": {"minimum": 0, "description": "Limited to {} to {}.".format(*HEARTBEAT_MS_RANGE)},
    },
    "Start": {"from_seq": U64, "epoch": U64},
    "ScanBody": {
        **dict.fromkeys(("from_seq", "to_seq", "since_ts", "until_ts", "max_records", "epoch"), U64),
        "columns": {"minItems": 1},
    },
    "CursorBody": {"seq": U64, "epoch": U64},
    "IdentityBody": {"batch": U64},
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
# What a field of a body that is left out means. Of fields with a `default`, openapi-typescript makes ones
# that have to be there.
OUR_DEFAULT = "x-default"
# What a description may say of a field beyond what its type says.
MORE = {*LIMITING, "description", "pattern", "enum", "prefixItems", OUR_DEFAULT, "additionalProperties"}
# What msgspec is told to write for a type that may be any JSON.
ANYTHING = {"description": "any"}


def decoded_types(app: RunningApp) -> set[Any]:
    """What the routes accept, and what the decoders in their modules decode to."""
    for module in pkgutil.walk_packages(topics.http.routes.__path__, "topics.http.routes."):
        importlib.import_module(module.name)
    modules = [module for name, module in sys.modules.items() if name.startswith("topics.http.routes.")]
    decoders = [found for module in modules for found in vars(module).values()]
    accepted = {route.accepts for route in app.app.server.routes if route.accepts is not None}
    return accepted | {found.kind for found in decoders if isinstance(found, StrictDecoder)}


COMMANDS = {socket._Ping, socket._Subscribe, socket._Unsubscribe}
# Decoded in the codec.
ELSEWHERE = {"WriteBody": AppendBody}


def test_every_body_is_one_that_is_decoded_and_the_other_way_round(
    described: Described, shared_app: RunningApp
) -> None:
    told = {
        body["content"][JSON]["schema"]["$ref"].rpartition("/")[2]
        for operation in described.by_route.values()
        if (body := operation.get("requestBody")) and JSON in body["content"]
    }
    bodies = {decoded.__name__ for decoded in decoded_types(shared_app) - COMMANDS}
    assert bodies | set(ELSEWHERE) == told


def test_bodies_have_the_fields_types_and_defaults_that_are_decoded(
    described: Described, shared_app: RunningApp
) -> None:
    types = [*(decoded_types(shared_app) - COMMANDS - {ConfigBody}), ConfigBody]
    _, schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}", schema_hook=lambda _: ANYTHING
    )
    for name, schema in schemas.items():
        assert name in described.schemas, f"add {name}: {json.dumps(schema)}"
        told = described.schemas[name]
        assert set(told["properties"]) == set(schema["properties"]), f"{name} should be {json.dumps(schema)}"
        assert set(told.get("required", ())) == set(schema["required"]), name
        assert told["additionalProperties"] is schema["additionalProperties"] is False, name
        for field, kind in schema["properties"].items():
            assert fits(told["properties"][field], kind), f"{name}.{field} should be {kind}"


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


def fits(told: Json, kind: Json) -> bool:
    """`told` says what `kind` says, and perhaps more about its limits."""
    for name, value in kind.items():
        if name == "anyOf":
            if not all(fits(*pair) for pair in zip(told.get(name, ()), value, strict=True)):
                return False
        elif name == "items" and value != ANYTHING:
            if not fits(told[name], value):
                return False
        elif name == "default" and value is None:
            # A field that may be null means that when it is left out.
            if told.get(OUR_DEFAULT, None) is not None:
                return False
        elif name != "items" and told.get(OUR_DEFAULT if name == "default" else name) != value:
            return False
    return set(told) - set(kind) <= MORE


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


def test_all_settings_of_a_topic_are_required_in_answers_and_optional_in_requests(
    described: Described,
) -> None:
    assert set(described.schemas["TopicConfig"]["required"]) == set(TopicConfig.__struct_fields__)
    assert "required" not in described.schemas["ConfigBody"]


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


def test_limits_of_bodies_are_those_of_the_settings(described: Described) -> None:
    bodies = {name for name in described.schemas if name.endswith("Body")} | {"Start"}
    for name in bodies:
        fields = described.schemas[name]["properties"].items()
        told = {field: found for field, schema in fields if (found := limits(schema))}
        assert told == LIMITS.get(name, {}), name


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


def test_numbers_in_words_are_those_of_the_settings(described: Described) -> None:
    summary = described.by_route["POST", "/v0/watch"]["summary"]
    assert summary == f"Open a watch session over up to {MAX_WATCH_TOPICS} topics."


def test_columns_are_those_of_a_scan(described: Described) -> None:
    from topics.log.read.scan import COLUMN_NAMES

    columns = described.schemas["ScanBody"]["properties"]["columns"]["anyOf"][0]
    assert columns["items"] == {"type": "string", "enum": list(COLUMN_NAMES)}
