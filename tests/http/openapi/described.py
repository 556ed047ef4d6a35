"""The OpenAPI document taken apart: operations by route, codes by answer, schemas that name every key."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs

from topics.http.response_heads import ARROW
from topics.http.sse import CONTENT_TYPE

Json = dict[str, Any]

JSON, EVENTS, ARROWS = "application/json", CONTENT_TYPE.decode(), ARROW.decode()


class Described:
    def __init__(self, document: Json) -> None:
        self.document = document
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
