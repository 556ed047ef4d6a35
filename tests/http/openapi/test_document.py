"""The OpenAPI document says what the server does: no more, no less."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

import topics
import topics.http
from tests.http.openapi.described import (
    ARROWS,
    EVENTS,
    FROM_FLAGS,
    JSON,
    Described,
    codes_from_flags,
    codes_of,
    failures,
    path_parameters,
    security,
    skeleton,
)
from tests.http.openapi.layout import laid_out
from tests.http.streaming import RunningApp
from topics.http.admission.readiness import Readiness
from topics.http.console.page import FILES
from topics.http.known_heads import KEY_HEADER
from topics.http.routes.probes import DOCUMENT, Probes
from topics.http.routing import Body, Route
from topics.values.errors import STATUS_BY_CODE

Start = Callable[..., RunningApp]

# How handlers look at a query.
ASKING = ("query", "query_flag", "query_number", "query_all")
RETRY = {"required": True, "schema": {"type": "integer", "minimum": 0}}
HEADERS = {
    "unauthorized": {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}},
    "throttled": {"Retry-After": RETRY},
    "not_ready": {"Retry-After": RETRY},
    "shutting_down": {"Retry-After": RETRY},
    "disk_full": {"Retry-After": RETRY},
}


@pytest.fixture(scope="module")
def routes(shared_app: RunningApp) -> list[Route]:
    # The files of the console are pages, and no part of the API.
    return [route for route in shared_app.app.server.routes if route.template not in FILES]


# --- the file -------------------------------------------------------------------------------------------


def test_it_is_served_with_the_version_of_the_package(shared_app: RunningApp, described: Described) -> None:
    answer = shared_app.call("GET", "/v0/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    info = described.document["info"] | {"version": topics.__version__}
    assert answer.json == described.document | {"info": info}
    OPENAPI_31_VALIDATOR.validate(answer.json)


def test_it_is_laid_out_in_one_way(described: Described) -> None:
    text = DOCUMENT.read_text()
    assert text == laid_out(described.document), "run python -m tests.http.openapi.layout"
    assert text.count('"operationId"') == len(described.by_route), "a path or a method is there twice"


def test_every_reference_leads_somewhere_and_every_component_is_used(described: Described) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    there = {
        f"#/components/{kind}/{name}"
        for kind, found in described.components.items()
        if kind != "securitySchemes"
        for name in found
    }
    # Only an operation that does not exist answers with this.
    assert set(references(described.document)) == there - {"#/components/schemas/Error.method_not_allowed"}


# --- routes ---------------------------------------------------------------------------------------------


def undescribed(routes: Iterable[Route], described: Described) -> list[str]:
    """What to add to the document, and what to take out."""
    here = {(route.method, route.template): route for route in routes}
    missing = [
        f"add {method} {template}: {json.dumps(skeleton(route), indent=2)}"
        for (method, template), route in here.items()
        if (method, template) not in described.by_route
    ]
    gone = [f"take out {method} {template}" for method, template in described.by_route.keys() - here.keys()]
    return missing + gone


def test_every_route_is_described_and_every_description_has_a_route(
    routes: list[Route], described: Described
) -> None:
    wrong = undescribed(routes, described)
    assert not wrong, "\n".join(wrong)
    ids = [operation["operationId"] for operation in described.by_route.values()]
    assert len(set(ids)) == len(ids)


def test_a_route_without_a_description_is_a_mistake(routes: list[Route], described: Described) -> None:
    elsewhere = Route(method="GET", template="/v0/elsewhere/:topic", handler=lambda exchange: None)
    (text,) = undescribed([*routes, elsewhere], described)
    assert text.startswith("add GET /v0/elsewhere/:topic: {")
    assert "#/components/responses/unauthorized" in text
    (text,) = undescribed(routes[1:], described)
    assert text == f"take out {routes[0].method} {routes[0].template}"


def test_keys_names_and_bodies_are_those_of_the_route(routes: list[Route], described: Described) -> None:
    for route in routes:
        operation = described.by_route[route.method, route.template]
        assert operation["security"] == security(route), route.template
        assert described.parameters(operation, "path") == path_parameters(route), route.template
        body = operation.get("requestBody")
        assert (body is not None) == route.takes_body, route.template
        if body is not None:
            assert body["required"] == (route.body is not Body.OPTIONAL), route.template
            assert list(body["content"]) == [ARROWS if route.arrow else JSON], route.template


def test_streams_and_sockets_are_those_of_the_route(routes: list[Route], described: Described) -> None:
    for route in routes:
        operation = described.by_route[route.method, route.template]
        answers = [described.whole(answer) for answer in operation["responses"].values()]
        streams = any(EVENTS in answer.get("content", ()) for answer in answers)
        assert streams == route.event_stream, route.template
        assert ("101" in operation["responses"]) == route.websocket, route.template
        assert ("x-websocket-messages" in operation) == route.websocket, route.template


def test_failures_are_those_of_the_route(routes: list[Route], described: Described) -> None:
    for route in routes:
        operation = described.by_route[route.method, route.template]
        own = set(described.codes(operation)) - FROM_FLAGS
        needed = failures(own | codes_from_flags(route))
        told = {status: to for status, to in operation["responses"].items() if int(status) >= 400}
        assert told == needed, f"{route.method} {route.template}: {json.dumps(needed, indent=2)}"


def test_every_query_parameter_and_header_that_is_looked_at_is_described(described: Described) -> None:
    looked_at: set[str] = set()
    headers: set[str] = set()
    for path in Path(topics.http.__file__ or "").parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=str(name)), *_]) if (
                    method in ASKING
                ):
                    looked_at.add(name)
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="headers"), attr="get"),
                    args=[ast.Constant(value=bytes(header)), *_],
                ) if "routes" in path.parts:
                    headers.add(header.decode())
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="headers"), attr="get"),
                    args=[ast.Name(id="KEY_HEADER"), *_],
                ) if "routes" in path.parts:
                    headers.add(KEY_HEADER.decode())
    # A key or a ticket in the query is a security scheme.
    assert looked_at - {"token", "ticket"} == named(described, "query")
    assert headers == {name.lower() for name in named(described, "header")}


def named(described: Described, place: str) -> set[str]:
    operations = described.by_route.values()
    return {told["name"] for operation in operations for told in described.parameters(operation, place)}


# --- errors ---------------------------------------------------------------------------------------------


def test_every_error_code_is_there(described: Described) -> None:
    codes = {name.partition(".")[2] for name in described.schemas if name.startswith("Error.")}
    assert codes == set(STATUS_BY_CODE)
    mentioned = {code for operation in described.by_route.values() for code in described.codes(operation)}
    # Only an operation that does not exist answers with this.
    assert codes - mentioned == {"method_not_allowed"}


def test_every_error_has_its_code(described: Described) -> None:
    for code in STATUS_BY_CODE:
        whole = described.schemas[f"Error.{code}"]
        assert whole["required"] == ["error"]
        body = whole["properties"]["error"]
        assert body["required"] == ["code", "message"]
        # Generators tell the errors of one status apart by it, if it is not hidden in an `allOf`.
        assert body["properties"]["code"] == {"const": code}


def test_a_failure_is_named_for_its_codes_and_has_their_headers(described: Described) -> None:
    for name, failure in described.components["responses"].items():
        codes = name.split(".")
        assert codes_of(failure) == codes == [code for code in STATUS_BY_CODE if code in codes]
        assert len({STATUS_BY_CODE[code] for code in codes}) == 1, name
        assert failure["description"].endswith(": " + ", ".join(codes))
        headers: dict[str, Any] = {}
        for code in codes:
            headers |= HEADERS.get(code, {})
        assert failure.get("headers", {}) == headers, name


# --- who gets it, and when ------------------------------------------------------------------------------


def test_no_key_is_needed_unless_the_probes_need_one(start: Start) -> None:
    open_app = start(api_keys="secret")
    assert open_app.call("GET", "/v0/openapi.json").status == 200
    guarded = start(api_keys="secret", probe_auth=True)
    assert guarded.call("GET", "/v0/openapi.json").status == 401
    answer = guarded.call("GET", "/v0/openapi.json", Authorization="Bearer secret")
    OPENAPI_31_VALIDATOR.validate(answer.json)
    routes = guarded.app.server.routes
    by_path = {(route.method, re.sub(r":(\w+)", r"{\1}", route.template)): route for route in routes}
    for path, operations in answer.json["paths"].items():
        for method, operation in operations.items():
            route = by_path[method.upper(), path]
            assert operation["security"] == security(route)
            codes = {code for told in operation["responses"].values() for code in _codes(told)}
            assert codes & FROM_FLAGS == codes_from_flags(route), path


def _codes(answer: dict[str, str]) -> list[str]:
    return answer["$ref"].rpartition("/")[2].split(".") if "$ref" in answer else []


def test_scopes_are_told(described: Described) -> None:
    by_route = described.by_route
    assert by_route["POST", "/v0/topics/:topic/claim"]["security"] == [{"bearer": ["read", "write"]}]
    assert {"token": []} in by_route["GET", "/v0/watch/:wid"]["security"]
    assert by_route["GET", "/v0/health"]["security"] == []


def test_it_is_read_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("topics.http.routes.probes.DOCUMENT", tmp_path / "none")
    routes = Probes(Readiness(), lambda: 0, key_needed=False).routes()
    assert "/v0/openapi.json" in [route.template for route in routes]
