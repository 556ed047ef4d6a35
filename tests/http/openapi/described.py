"""`openapi.json` taken apart: operations by route, codes by answer, schemas that let no key pass unnamed."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs

from topics.http.admission.auth import ADMIN, DELETE, READ, WRITE
from topics.http.response_heads import ARROW
from topics.http.routes.probes import DOCUMENT
from topics.http.routing import Body, Route
from topics.http.sse import CONTENT_TYPE
from topics.values.errors import STATUS_BY_CODE
from topics.values.names import ROUTER_NAME, TOPIC_NAME

Json = dict[str, Any]

JSON, EVENTS, ARROWS = "application/json", CONTENT_TYPE.decode(), ARROW.decode()
SCOPES = {"read": READ, "write": WRITE, "delete": DELETE, "admin": ADMIN}
PATTERNS = {"topic": TOPIC_NAME.pattern, "router": ROUTER_NAME.pattern}
# Whether a route has these follows from its flags; all others are its own.
FROM_FLAGS = {
    "invalid_request",
    "internal",
    "unauthorized",
    "forbidden",
    "throttled",
    "payload_too_large",
    "unsupported_media_type",
    "not_acceptable",
    "not_ready",
    "shutting_down",
}


class Described:
    def __init__(self) -> None:
        self.document: Json = json.loads(DOCUMENT.read_text())
        self.components: Json = self.document["components"]
        self.schemas: Json = self.components["schemas"]
        self.by_route: dict[tuple[str, str], Json] = {
            (method.upper(), re.sub(r"{(\w+)}", r":\1", path)): operation
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }
        self._closed = _closed(self.components)
        _without_other_details(self._closed["schemas"])

    def whole(self, part: Json) -> Json:
        """A parameter or an answer, also one that is only referred to."""
        if "$ref" not in part:
            return part
        kind, name = part["$ref"].removeprefix("#/components/").split("/")
        found: Json = self.components[kind][name]
        return found

    def answer(self, operation: Json, status: int) -> Json:
        assert str(status) in operation["responses"], (
            f"{operation['operationId']} says nothing about {status}"
        )
        return self.whole(operation["responses"][str(status)])

    def codes(self, operation: Json) -> list[str]:
        failures = [answer for status, answer in operation["responses"].items() if int(status) >= 400]
        return [code for failure in failures for code in codes_of(self.whole(failure))]

    def parameters(self, operation: Json, place: str) -> list[Json]:
        parameters = map(self.whole, operation.get("parameters", []))
        return [parameter for parameter in parameters if parameter["in"] == place]

    def validate(self, schema: Json, value: Any) -> None:
        """Raises also for keys that the schema does not name."""
        jsonschema_rs.Draft202012Validator(_closed(schema) | {"components": self._closed}).validate(value)


def codes_of(failure: Json) -> list[str]:
    schema = failure["content"][JSON]["schema"]
    refs = [one["$ref"] for one in schema.get("anyOf", [schema])]
    return [ref.removeprefix("#/components/schemas/Error.") for ref in refs]


def _closed(schema: Any) -> Any:
    """Answers may gain keys, and clients ignore those they do not know. Tests do not."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(inner) for name, inner in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _without_other_details(schemas: Json) -> None:
    """An error whose details are not described has none."""
    for name, error in schemas.items():
        if name.startswith("Error."):
            described = error["properties"]["error"]["properties"]
            described.setdefault("detail", {"maxProperties": 0})


# What follows from a route


def codes_from_flags(route: Route) -> set[str]:
    # Forbidden is also a host or an origin that is not allowed.
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
    if not route.always_open or route.template in ("/v0/ready", "/readyz"):
        codes |= {"not_ready", "shutting_down"}
    return codes


def security(route: Route) -> list[Json]:
    if route.public:
        return []
    scopes = [name for name, bit in SCOPES.items() if route.scopes & bit]
    keys: list[Json] = [{"bearer": scopes}]
    if route.event_stream:
        keys.append({"ticket": scopes})
    return [*keys, {"token": scopes}] if route.token_in_query else keys


def path_parameters(route: Route) -> list[Json]:
    schema: Json = {"type": "string", "minLength": 1}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schema | ({"pattern": f"^{PATTERNS[name]}$"} if name in PATTERNS else {}),
        }
        for name in re.findall(r":(\w+)", route.template)
    ]


def failures(codes: set[str]) -> Json:
    """Answers by status, each one referring to the component that is named for its codes."""
    by_status: dict[str, list[str]] = {}
    for code in STATUS_BY_CODE:
        if code in codes:
            by_status.setdefault(str(STATUS_BY_CODE[code]), []).append(code)
    return {
        status: {"$ref": f"#/components/responses/{'.'.join(together)}"}
        for status, together in by_status.items()
    }


def skeleton(route: Route) -> Json:
    """What the document has to say at least about a route; the words are missing."""
    operation: Json = {"operationId": "", "tags": [""], "summary": "", "security": security(route)}
    parameters = path_parameters(route)
    if parameters:
        operation["parameters"] = parameters
    schema = {"schema": {"$ref": "#/components/schemas/"}}
    if route.takes_body:
        content: Json = {ARROWS: {}} if route.arrow else {JSON: schema}
        operation["requestBody"] = {"required": route.body is not Body.OPTIONAL, "content": content}
    success: Json = {"description": "OK", "content": {JSON: schema}}
    if route.event_stream:
        success["content"] = {EVENTS: {"schema": {"type": "string"}}}
    operation["responses"] = {"200": success} | failures(codes_from_flags(route))
    return operation
