"""The OpenAPI document says what the server does: no more, no less."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

import topics
import topics.http
from tests.http.openapi.described import (
    EVENTS,
    Described,
)
from tests.http.streaming import RunningApp
from topics.core.errors import STATUS_BY_CODE
from topics.http.console.routes import FILES
from topics.http.routing import Route

Start = Callable[..., RunningApp]


@pytest.fixture(scope="module")
def routes(shared_app: RunningApp) -> list[Route]:
    # The files of the console are pages, and no part of the API.
    return [route for route in shared_app.app.server.routes if route.template not in FILES]


# --- the file -------------------------------------------------------------------------------------------


def test_it_is_served_with_the_version_of_the_package(shared_app: RunningApp, described: Described) -> None:
    answer = shared_app.call("GET", "/v0/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json["info"]["version"] == topics.__version__
    assert answer.json["paths"] == described.document["paths"]
    assert answer.json["components"] == described.document["components"]
    OPENAPI_31_VALIDATOR.validate(answer.json)


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


def test_every_route_is_described_and_every_description_has_a_route(routes: list[Route]) -> None:
    source = Path(topics.http.__file__ or "").parent / "openapi.json"
    operations = json.loads(source.read_text())["operations"]
    assert set(operations) == {f"{route.method} {route.template}" for route in routes}
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)


def test_parameters_of_a_query_are_those_of_the_route(routes: list[Route], described: Described) -> None:
    for route in routes:
        operation = described.by_route[route.method, route.template]
        told = {parameter["name"] for parameter in described.parameters(operation, "query")}
        assert set(route.query) <= told <= route.known_query, route.template


def test_streams_and_sockets_are_those_of_the_route(routes: list[Route], described: Described) -> None:
    for route in routes:
        operation = described.by_route[route.method, route.template]
        answers = [described.whole(answer) for answer in operation["responses"].values()]
        streams = any(EVENTS in answer.get("content", ()) for answer in answers)
        assert streams == route.event_stream, route.template
        assert ("101" in operation["responses"]) == route.websocket, route.template
        assert ("x-websocket-messages" in operation) == route.websocket, route.template


# --- errors ---------------------------------------------------------------------------------------------


def test_every_error_code_is_there(described: Described) -> None:
    codes = {name.partition(".")[2] for name in described.schemas if name.startswith("Error.")}
    assert codes == set(STATUS_BY_CODE)
    mentioned = {code for operation in described.by_route.values() for code in described.codes(operation)}
    # Only an operation that does not exist answers with this.
    assert codes - mentioned == {"method_not_allowed"}


# --- who gets it, and when ------------------------------------------------------------------------------


def test_no_key_is_needed_unless_the_probes_need_one(start: Start) -> None:
    open_app = start(api_keys="secret")
    assert open_app.call("GET", "/v0/openapi.json").status == 200
    guarded = start(api_keys="secret", probe_auth=True)
    assert guarded.call("GET", "/v0/openapi.json").status == 401
    answer = guarded.call("GET", "/v0/openapi.json", Authorization="Bearer secret")
    OPENAPI_31_VALIDATOR.validate(answer.json)
    for operations in answer.json["paths"].values():
        for operation in operations.values():
            assert operation["security"]
            assert "401" in operation["responses"]
