"""The OpenAPI 3.1 document, put together from the routes the server really has.

A route's flags say which keys it needs, what body it takes and how it can be refused; what it is for, and
what its answers hold, is in `operations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

import topics
from topics.http.door.keys import ADMIN, DELETE, READ, WRITE
from topics.http.openapi.describing import Operation, Query
from topics.http.openapi.details import DETAILS, REFINED
from topics.http.openapi.models import Error
from topics.http.openapi.operations import OPERATIONS
from topics.http.openapi.socket_messages import messages
from topics.http.wire.routing import Body, Route
from topics.values.errors import STATUS_BY_CODE
from topics.values.names import ROUTER_NAME, TOPIC_NAME

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_SCOPES = {READ: "read", WRITE: "write", DELETE: "delete", ADMIN: "admin"}
_JSON = "application/json"
_NAMES: dict[str, Json] = {
    "topic": {"pattern": f"^{TOPIC_NAME.pattern}$"},
    "router": {"pattern": f"^{ROUTER_NAME.pattern}$"},
}
_HEADERS = {
    "unauthorized": ("WWW-Authenticate", {"type": "string", "const": "Bearer"}),
    "throttled": ("Retry-After", {"type": "integer", "minimum": 0}),
    "not_ready": ("Retry-After", {"type": "integer", "minimum": 0}),
    "shutting_down": ("Retry-After", {"type": "integer", "minimum": 0}),
}
_ABOUT = """An append-only event log over HTTP and JSON.

Any request may also be refused before its route is known: 400 when it is not valid HTTP, 404 for an unknown
path, 405 for a method a path does not have, 413 for a body that is too large, 414 and 431 for a target or
headers that are too long, 429 when too many connections are open. All of these, and every other failure, are
an object with `error` at its top level."""


def build(routes: Iterable[Route]) -> Json:
    schemas = _Schemas()
    paths: dict[str, Json] = {}
    for route in routes:
        operation = OPERATIONS[route.method, route.template]
        path = re.sub(r":(\w+)", r"{\1}", route.template)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "topics", "version": topics.__version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components() | _error_schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


class _Schemas:
    """Every model as a component; all of them are known before the first one is described."""

    def __init__(self) -> None:
        types = {model: None for operation in OPERATIONS.values() for model in _models(operation)}
        schemas, self._components = msgspec.json.schema_components(
            [*types, Error], ref_template=_REF, schema_hook=_any_value
        )
        self._by_type = dict(zip(types, schemas, strict=False))

    def of(self, model: Any) -> Json:
        schema: Json = self._by_type[model]
        return schema

    def components(self) -> Json:
        for name, schema in self._components.items():
            # Answers may gain keys, and unknown ones in requests are ignored.
            schema.pop("additionalProperties", None)
            _refine(schema, REFINED.get(name, {}))
        config = self._components["TopicConfig"]
        config["required"] = list(config["properties"])
        return self._components


def _any_value(_: type) -> Json:
    return {"description": "Any JSON value."}


def _models(operation: Operation) -> Iterable[Any]:
    for model in (operation.takes, *operation.answers.values()):
        for one in model if isinstance(model, tuple) else (model,):
            if one is not None and not isinstance(one, str):
                yield one


def _refine(schema: Json, refined: dict[str, Json]) -> None:
    for name, keywords in refined.items():
        described = schema["properties"][name]
        kinds = described.get("anyOf", [described])
        # Whole, or only what it may be besides null.
        narrowed = described if "anyOf" in keywords else next(k for k in kinds if k.get("type") != "null")
        narrowed.update(keywords)


# One operation


def _operation(route: Route, operation: Operation, schemas: _Schemas) -> Json:
    described: Json = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": _parameters(route, operation),
        "responses": _answers(operation, schemas) | _failures(_codes(route, operation)),
        "security": _security(route),
    }
    if route.takes_body:
        described["requestBody"] = _request_body(route, operation, schemas)
    if route.websocket:
        described["x-websocket-messages"] = messages()
    return described


def _security(route: Route) -> list[Json]:
    if route.public:
        return []
    scopes = [name for bit, name in _SCOPES.items() if route.scopes & bit]
    keys: list[Json] = [{"bearer": scopes}]
    return [*keys, {"token": scopes}] if route.token_in_query else keys


def _parameters(route: Route, operation: Operation) -> list[Json]:
    parameters: list[Json] = []
    for name in re.findall(r":(\w+)", route.template):
        schema = {"type": "string", "minLength": 1, **_NAMES.get(name, {})}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    parameters += [_parameter(query, "query") for query in operation.query]
    parameters += [_parameter(header, "header") for header in operation.headers]
    return parameters


def _parameter(query: Query, place: str) -> Json:
    return {
        "name": query.name,
        "in": place,
        "required": query.required,
        "description": query.text,
        "schema": query.schema,
    }


def _request_body(route: Route, operation: Operation, schemas: _Schemas) -> Json:
    if isinstance(operation.takes, str):
        content: Json = {operation.takes: {}}
    else:
        content = {_JSON: {"schema": schemas.of(operation.takes)}}
    return {"required": route.body is not Body.OPTIONAL, "content": content}


def _answers(operation: Operation, schemas: _Schemas) -> Json:
    responses: Json = {}
    for status, models in operation.answers.items():
        response: Json = {"description": HTTPStatus(status).phrase}
        for model in models if isinstance(models, tuple) else (models,):
            if isinstance(model, str):
                response.setdefault("content", {})[model] = (
                    {"schema": {"type": "string"}} if "text" in model else {}
                )
            elif model is not None:
                response.setdefault("content", {})[_JSON] = {"schema": schemas.of(model)}
        responses[str(status)] = response
    return responses


# Failures


def _codes(route: Route, operation: Operation) -> list[str]:
    """Every code this route may answer with, in the order of the catalogue."""
    codes = {"invalid_request", "internal", *operation.errors}
    if not route.public:
        codes |= {"unauthorized"}
        if route.scopes or route.all_names:
            codes |= {"forbidden"}
        # Each key has places for its requests, streams or sockets.
        if not route.always_open:
            codes |= {"throttled"}
    if route.takes_body:
        codes |= {"payload_too_large", "unsupported_media_type"}
    if route.event_stream:
        codes |= {"not_acceptable"}
    if not route.always_open:
        codes |= {"not_ready", "shutting_down"}
    return [code for code in STATUS_BY_CODE if code in codes]


def _failures(codes: list[str]) -> Json:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS_BY_CODE[code], []).append(code)
    return {str(status): _failure(status, together) for status, together in by_status.items()}


def _failure(status: int, codes: list[str]) -> Json:
    refs = [{"$ref": _REF.format(name=_error_name(code))} for code in codes]
    response: Json = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
        "content": {_JSON: {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}},
    }
    headers = {_HEADERS[code][0]: _HEADERS[code][1] for code in codes if code in _HEADERS}
    if headers:
        response["headers"] = {name: {"required": True, "schema": schema} for name, schema in headers.items()}
    return response


def _error_name(code: str) -> str:
    return "Error." + code


def _error_schemas() -> Json:
    """One schema for each code: the common shape, and what `detail` holds."""
    schemas: Json = {}
    for code in STATUS_BY_CODE:
        narrowed: Json = {"properties": {"code": {"const": code}}}
        if code in DETAILS:
            narrowed["properties"]["detail"] = {"type": "object", "properties": DETAILS[code]}
        schemas[_error_name(code)] = {
            "allOf": [{"$ref": _REF.format(name="Error")}, {"properties": {"error": narrowed}}]
        }
    return schemas
