"""The OpenAPI document: built from the routes, from the structs that they accept, and from `openapi.json`.

Keys, path parameters, bodies and failures follow from a route. The fields of a body and their defaults
follow from its struct, and their limits from the settings. The file has everything else: words, parameters of
queries, and what replies hold.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from topics.core import (
    DEFAULT_LIMIT,
    FIELDS,
    LEASE_MS_RANGE,
    MAX_CLAIM,
    MAX_LIMIT,
    MAX_NODES,
    MAX_READ_BYTES,
    MAX_WAIT_MS,
    MAX_WATCH_TOPICS,
    NODE_AT,
    STATUS_BY_CODE,
    U64_MAX,
)
from topics.core.config import CLAIM_JITTER_MS_MAX, PRIORITY_LIMIT
from topics.core.names import ROUTER_NAME, TOPIC_NAME
from topics.flow.pipelines import MAX_WHY_BYTES
from topics.http.admission.auth import SCOPES
from topics.http.response_heads import ARROW
from topics.http.routes.queues import MAX_ERROR_BYTES
from topics.http.routes.subscriptions import HEARTBEAT_MS_RANGE
from topics.http.routing import Body, Route

Json = dict[str, Any]

_SOURCE = Path(__file__).parent / "openapi.json"
_JSON = "application/json"
_PATTERNS = {"topic": TOPIC_NAME.pattern, "router": ROUTER_NAME.pattern}
# Numbers above a maximum are no mistake, so their schema has none: a description names it.
_U64: Json = {"minimum": 0, "maximum": U64_MAX}
_LEASE: Json = {"minimum": 0, "description": "Limited to {} to {}.".format(*LEASE_MS_RANGE)}
_LIMIT: Json = {"minimum": 0, "description": f"At most {MAX_LIMIT}; 0 means {DEFAULT_LIMIT}."}
# Lengths are in bytes of UTF-8, so that a schema's characters are only an upper bound.
_NODE: Json = {"minLength": 1, "maxLength": FIELDS[NODE_AT].max_bytes}
_SEQS: Json = {"maxItems": MAX_CLAIM, "items": {"type": "integer", **_U64}}
_WAIT = f"Limited to 0 to {MAX_WAIT_MS}."
# Limits of the fields of a body, by struct.
_LIMITS: dict[str, dict[str, Json]] = {
    "PipelineBody": {"why": {"description": f"At most {MAX_WHY_BYTES} bytes."}},
    "ConfigBody": {
        **dict.fromkeys(
            ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"), _U64
        ),
        "lease_ms": _LEASE,
        "claim_jitter_ms": {"minimum": 0, "description": f"Limited to 0 to {CLAIM_JITTER_MS_MAX}."},
        "priority": {"description": f"Limited to {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}."},
    },
    "DiffBody": {
        "from_seq": _U64,
        "limit": _LIMIT,
        "wait_ms": {"minimum": 0, "description": _WAIT},
        "max_batch_bytes": {"minimum": 0, "description": f"At most {MAX_READ_BYTES}; 0 means the default."},
        "epoch": _U64,
    },
    "DeleteBody": {"before_seq": _U64, "seqs": {"minItems": 1, **_SEQS}},
    "ClaimBody": {
        "node": _NODE,
        "max": {"minimum": 0, "description": f"At most {MAX_CLAIM}; 0 means 1."},
        "lease_ms": _LEASE,
        "wait_ms": {"minimum": 0, "description": f"How long to wait for a job. {_WAIT}"},
    },
    "HeldBody": {"node": _NODE, "seqs": _SEQS},
    "NackBody": {
        "node": _NODE,
        "seqs": _SEQS,
        "delay_ms": {"minimum": 0},
        "error": {"maxLength": MAX_ERROR_BYTES},
    },
    "ExtendBody": {"node": _NODE, "seqs": _SEQS, "lease_ms": _LEASE},
    "RedriveBody": {"max": _U64},
    "WatchBody": {
        "topics": {"minProperties": 1, "maxProperties": MAX_WATCH_TOPICS},
        "limit": _LIMIT,
        "max_batch_bytes": {"minimum": 0},
        "heartbeat_ms": {"minimum": 0, "description": "Limited to {} to {}.".format(*HEARTBEAT_MS_RANGE)},
    },
    "Start": {"from_seq": _U64, "epoch": _U64},
    "ScanBody": {
        **dict.fromkeys(("from_seq", "to_seq", "since_ts", "until_ts", "max_records", "epoch"), _U64),
        "columns": {"minItems": 1},
    },
    "CursorBody": {"seq": _U64, "epoch": _U64},
    "IdentityBody": {"batch": _U64},
}
# The only arrays of any values are tags as triples.
_TAG = "A tag, the beginning of tags followed by `*`, or either one as a triple."
_TAG_TRIPLE: Json = {
    "prefixItems": [{"const": "tag"}, {"enum": ["Eq", "Glob"]}, {"type": "string"}],
    "minItems": 3,
    "maxItems": 3,
}
# msgspec needs some schema for a type that may be any JSON.
_ANYTHING: Json = {"description": "any"}
# Codes of failures that follow from the flags of a route; its operation in the file names the others.
_RETRY = {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 0}}}
_HEADERS: dict[str, Json] = {
    "unauthorized": {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}},
    **dict.fromkeys(("throttled", "not_ready", "shutting_down", "disk_full"), _RETRY),
}


def build(routes: Iterable[Route]) -> Json:
    """Return the document of these routes. A route without an operation in the file is no part of the API.
    Paths are in the order of the file."""
    source: Json = msgspec.json.decode(_SOURCE.read_bytes())
    operations = source.pop("operations")
    by_key = {_key(route): route for route in routes}
    routes = [by_key[key] for key in operations if key in by_key]
    paths: Json = {}
    responses: Json = {}
    components = source["components"]
    for route in routes:
        path = re.sub(r":(\w+)", r"{\1}", route.template)
        operation = _operation(route, operations[_key(route)], components["parameters"], responses)
        paths.setdefault(path, {})[route.method.lower()] = operation
    components["responses"] |= responses
    components["schemas"] |= _bodies(routes, components["fields"]) | _errors(components.pop("details"))
    del components["fields"]
    return source | {"paths": paths, "components": components}


def _key(route: Route) -> str:
    return f"{route.method} {route.template}"


def _operation(route: Route, words: Json, parameters: Json, responses: Json) -> Json:
    operation: Json = {
        "operationId": words["operationId"],
        "tags": [words["tag"]],
        "summary": words["summary"],
    }
    operation |= {name: value for name, value in words.items() if name.startswith("x-")}
    operation["security"] = _security(route)
    listed = [_path_parameter(name, parameters) for name in re.findall(r":(\w+)", route.template)]
    listed += words.get("parameters", [])
    if listed:
        operation["parameters"] = listed
    if route.takes_body:
        operation["requestBody"] = _request_body(route, words)
    codes = _codes_from_flags(route) | set(words.get("errors", ()))
    replies = {status: _reply(int(status), about) for status, about in words["replies"].items()}
    operation["responses"] = replies | _failures(codes, responses)
    return operation


def _security(route: Route) -> list[Json]:
    if route.public:
        return []
    scopes = [name for name, bit in SCOPES.items() if route.scopes & bit]
    schemes = [
        "bearer",
        *(["ticket"] if route.event_stream else []),
        *(["token"] if route.token_in_query else []),
    ]
    return [{scheme: scopes} for scheme in schemes]


def _path_parameter(name: str, parameters: Json) -> Json:
    schema: Json = {"type": "string", "minLength": 1}
    if name in _PATTERNS:
        schema["pattern"] = f"^{_PATTERNS[name]}$"
    parameters[name] = {"name": name, "in": "path", "required": True, "schema": schema}
    return {"$ref": f"#/components/parameters/{name}"}


def _reply(status: int, about: str | Json) -> Json:
    """Return a reply; `about` is the name of a schema, or all that there is to say."""
    if not isinstance(about, str):
        return about
    schema = {"$ref": f"#/components/schemas/{about}"}
    return {"description": HTTPStatus(status).phrase, "content": {_JSON: {"schema": schema}}}


def _request_body(route: Route, words: Json) -> Json:
    if route.arrow:
        content: Json = {ARROW.decode(): words.get("arrow", {})}
    else:
        name = words["body"] if route.accepts is None else route.accepts.__name__
        content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"required": route.body is not Body.OPTIONAL, "content": content}


# Failures


def _codes_from_flags(route: Route) -> set[str]:
    # A host or an origin that is not allowed is forbidden, too.
    codes = {"invalid_request", "internal", "forbidden"}
    if not route.public:
        codes |= {"unauthorized"}
        # Each key has places for its requests, streams or sockets.
        if not route.always_open:
            codes |= {"throttled"}
    if route.takes_body:
        codes |= {"payload_too_large", "unsupported_media_type"}
    if route.event_stream:
        codes |= {"not_acceptable"}
    if not route.always_open:
        codes |= {"not_ready", "shutting_down"}
    return codes


def _failures(codes: set[str], responses: Json) -> Json:
    """Return the failures by status, and add their components to `responses`."""
    by_status: dict[int, list[str]] = {}
    for code, status in STATUS_BY_CODE.items():
        if code in codes:
            by_status.setdefault(status, []).append(code)
    failures: Json = {}
    for status, together in by_status.items():
        name = ".".join(together)
        refs = [{"$ref": f"#/components/schemas/Error.{code}"} for code in together]
        headers: Json = {}
        for code in together:
            headers |= _HEADERS.get(code, {})
        responses[name] = {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(together)}",
            "content": {_JSON: {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}},
        } | ({"headers": headers} if headers else {})
        failures[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return failures


def _errors(details: Json) -> Json:
    """Return the schema of each error; `details` are the properties of its detail."""
    schemas: Json = {}
    for code in STATUS_BY_CODE:
        error: Json = {"code": {"const": code}, "message": {"type": "string", "minLength": 1}}
        if code in details:
            error["detail"] = details[code]
        schemas[f"Error.{code}"] = {
            "type": "object",
            "properties": {
                "error": {"type": "object", "properties": error, "required": ["code", "message"]},
            },
            "required": ["error"],
        }
    return schemas


# Bodies


def _bodies(routes: Iterable[Route], words: Json) -> Json:
    """Return the schemas of the structs that routes accept. `words` says more about some of their fields."""
    types = {route.accepts for route in routes if route.accepts is not None}
    _, schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}", schema_hook=lambda _: _ANYTHING
    )
    for name, schema in schemas.items():
        del schema["title"]
        if not schema["required"]:
            del schema["required"]
        more, limits = words.get(name, {}), _LIMITS.get(name, {})
        schema["properties"] = {
            field: _field(kind, limits.get(field, {}) | more.get(field, {}))
            for field, kind in schema["properties"].items()
        }
    return schemas


def _field(schema: Json, more: Json) -> Json:
    # From a field with a `default`, openapi-typescript makes one that has to be there.
    default = schema.pop("default", None)
    kinds = schema.get("anyOf", [schema])
    kinds[0] |= more
    for kind in kinds:
        if kind.get("items") == _ANYTHING:
            del kind["items"]
            kind |= _TAG_TRIPLE
            schema["description"] = _TAG
        elif kind.get("type") == "array" and kind is not kinds[0]:
            kind["maxItems"] = MAX_NODES
    return schema if default is None else schema | {"x-default": default}
