"""The OpenAPI document says what the server does: no more, no less."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

import topics.http
from tests.http.bulk import ARROW
from tests.http.streaming import RunningApp
from tests.support import Answer, Wire
from tests.support.arrow import arrow_stream
from topics.http.openapi import models, socket_messages
from topics.http.openapi.details import DETAILS
from topics.http.openapi.document import build
from topics.http.openapi.operations import OPERATIONS
from topics.http.routes import socket as socket_commands
from topics.http.wire.routing import Route
from topics.log.write.batch import AppendBody, Line
from topics.values.config import TopicConfig
from topics.values.errors import STATUS_BY_CODE

Start = Callable[..., RunningApp]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path_factory.mktemp("openapi"))
    yield app
    app.stop()


@pytest.fixture(scope="module")
def document(app: RunningApp) -> Any:
    answer = app.call("GET", "/v0/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return answer.json


def test_it_is_valid(document: Any) -> None:
    OPENAPI_31_VALIDATOR.validate(document)


def test_every_route_is_described_and_every_description_has_a_route(app: RunningApp, document: Any) -> None:
    routes = app.app._routes()
    assert {(route.method, route.template) for route in routes} == set(OPERATIONS)
    assert {
        (method.upper(), path.replace("{", ":").replace("}", ""))
        for path, methods in document["paths"].items()
        for method in methods
    } == set(OPERATIONS)
    ids = [operation.id for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)
    for route in routes:
        operation = OPERATIONS[route.method, route.template]
        assert route.takes_body == (operation.takes is not None), route.template
        assert route.arrow == (operation.takes == ARROW), route.template


def test_every_reference_leads_somewhere(document: Any) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(document))
    assert found
    assert {ref.removeprefix("#/components/schemas/") for ref in found} <= set(
        document["components"]["schemas"]
    )


def test_every_error_code_is_there(document: Any) -> None:
    codes = {
        name.partition(".")[2] for name in document["components"]["schemas"] if name.startswith("Error.")
    }
    assert codes == set(STATUS_BY_CODE)
    mentioned = {
        ref["$ref"].rpartition(".")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
        for schema in [response["content"]["application/json"]["schema"]]
        for ref in schema.get("anyOf", [schema])
    }
    # Only an operation that does not exist answers with this.
    assert codes - mentioned == {"method_not_allowed"}


def test_a_write_has_the_fields_that_are_decoded() -> None:
    assert set(models.WriteBody.__struct_encode_fields__) == set(AppendBody.__struct_encode_fields__)
    taken = {name for name in Line.__struct_encode_fields__ if not name.startswith("$")}
    assert set(models.RecordBody.__struct_encode_fields__) == taken


def test_socket_commands_have_the_fields_that_are_decoded() -> None:
    commands = socket_messages.COMMANDS
    assert set(commands["subscribe"]) == set(socket_commands._Subscribe.__struct_encode_fields__)
    assert set(commands["unsubscribe"]) == set(socket_commands._Unsubscribe.__struct_encode_fields__)
    publish = set(socket_commands._Publish.__struct_encode_fields__)
    assert publish - set(models.WriteBody.__struct_encode_fields__) == set(commands["publish"])


def test_every_query_parameter_that_is_looked_at_is_described() -> None:
    looked_at: set[str] = set()
    for path in Path(topics.http.__file__ or "").parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="query" | "query_flag"), args=[ast.Constant(value=str(name)), *_]
                ):
                    looked_at.add(name)
    described = {query.name for operation in OPERATIONS.values() for query in operation.query}
    # The key in the query is a security scheme.
    assert looked_at - {"token"} == described


def test_all_settings_of_a_topic_are_required_in_answers_and_optional_in_requests(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["TopicConfig"]["required"]) == set(TopicConfig.__struct_fields__)
    assert not schemas["ConfigBody"]["required"]


# --- answers --------------------------------------------------------------------------------------------


class Visit:
    """Calls the server and decodes what it says into the model of its operation: nothing may be left over."""

    def __init__(self, app: RunningApp) -> None:
        self._app = app
        self.visited: set[tuple[str, int]] = set()

    def __call__(
        self, method: str, path: str, body: Any = None, *, arrow: bytes | None = None, wanted: int = 200
    ) -> Any:
        wire = Wire(self._app.address)
        try:
            if arrow is not None:
                answer = wire.request(method, path, arrow, {"Content-Type": ARROW})
            else:
                data = None if body is None else json.dumps(body).encode()
                answer = wire.request(method, path, data)
        finally:
            wire.close()
        assert answer.status == wanted, answer.body
        return self._checked(method, path, answer)

    def _checked(self, method: str, path: str, answer: Answer) -> Any:
        match = self._app.app.server.context.routes.find(method.encode(), path.encode())
        assert match.route is not None
        operation = OPERATIONS[method, match.route.template]
        self.visited.add((operation.id, answer.status))
        if answer.status >= 400:
            error = msgspec.json.decode(answer.body, type=models.Error).error
            assert set(error.detail or ()) <= set(DETAILS.get(error.code, ())), answer.body
            return answer.json
        model = operation.answers[answer.status]
        if isinstance(model, str):
            assert answer.headers["content-type"].startswith(model)
            return None
        if isinstance(model, tuple):
            assert answer.headers["content-type"].startswith(model[0])
            return None
        msgspec.json.decode(answer.body, type=model)
        return answer.json


def test_every_answer_fits_its_model(start: Start) -> None:
    app = start()
    visit = Visit(app)
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/openapi.json", "/v0/metrics"):
        visit("GET", path)
    _visit_topics(visit)
    _visit_queues(visit)
    _visit_routers(visit)
    _visit_bulk(visit)
    _visit_operations(visit)
    session = visit("POST", "/v0/watch", {"topics": {"log": {}}})
    reader = app.events(session["wid"])
    assert reader.status == 200
    # The other two streams are opened in tests of their own.
    elsewhere = {("watchStream", 200), ("work", 200), ("socket", 101)}
    assert visit.visited | elsewhere == {(o.id, status) for o in OPERATIONS.values() for status in o.answers}


def test_every_detail_of_an_error_is_described(start: Start) -> None:
    visit = Visit(start(max_topics=2))
    row = arrow_stream({"data": ["1"]})
    visit("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"}, wanted=201)
    visit("POST", "/v0/topics/full/append", arrow=arrow_stream({"data": ["1"]}, {"data": ["2"]}), wanted=422)
    visit("POST", "/v0/topics/full/append", arrow=arrow_stream({"data": ["1", "2"]}), wanted=400)
    visit("POST", "/v0/topics/none/append?create=false", arrow=row, wanted=404)
    visit("POST", "/v0/topics/a%20b/append", arrow=row, wanted=400)
    visit("POST", "/v0/topics/other/append", arrow=row, wanted=201)
    visit("POST", "/v0/topics/third/append", arrow=row, wanted=429)
    visit("GET", "/v0/topics/full/cursors/none", wanted=404)
    commit = {"identity": {"id": "i", "batch": 1}, "parts": [0]}
    visit("POST", "/v0/stages/s/commit", commit, wanted=404)
    for value, wanted in (("1", 200), ("2", 409)):
        visit("PUT", "/v0/stages/s/parts/0?topic=other", arrow=arrow_stream({"data": [value]}))
        visit("POST", "/v0/stages/s/commit", commit, wanted=wanted)
    visit("PUT", "/v0/topics/full", {"type": "queue"}, wanted=409)
    visit("DELETE", "/v0/topics/full?if_empty=true", wanted=409)
    visit("POST", "/v0/topics/full/claim", {"node": "n"}, wanted=409)
    visit("GET", "/v0/routers/none", wanted=404)


def _visit_operations(visit: Visit) -> None:
    purge = visit("POST", "/v0/admin/purge", {"topics": ["log"]}, wanted=202)
    visit("GET", f"/v0/admin/purge/{purge['purge']}")
    hold = visit("POST", "/v0/admin/backup")
    visit("POST", f"/v0/admin/backup/{hold['hold']}/renew")
    visit("DELETE", f"/v0/admin/backup/{hold['hold']}")


def _visit_topics(visit: Visit) -> None:
    visit("PUT", "/v0/topics/log", {"cap_records": 3}, wanted=201)
    visit("PUT", "/v0/topics/log", {"cap_records": 3, "priority": 5, "dead_letter": "dead"})
    record = {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": 1}}
    visit("POST", "/v0/topics/log", {"records": [record] * 5})
    visit("POST", "/v0/topics/log?return_seqs=false", {"records": [{"data": None}], "idempotency_key": "k"})
    visit("POST", "/v0/topics/other", {"records": [{"data": 1}]}, wanted=201)
    page = visit("POST", "/v0/topics/log/diff", {"include_tags": True})
    assert page["tombstone"]
    visit("POST", "/v0/topics/log/delete", {"match": "t"})
    visit("GET", "/v0/topics/log")
    assert visit("GET", "/v0/topics?page_size=1")["next_cursor"]
    visit("DELETE", "/v0/topics/other")


def _visit_queues(visit: Visit) -> None:
    visit("PUT", "/v0/topics/jobs", {"type": "queue"}, wanted=201)
    visit("POST", "/v0/topics/jobs", {"records": [{"data": n, "tag": "t", "meta": {}} for n in range(4)]})
    assert visit("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 3})["claimed"]
    visit("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": [1, 9]})
    visit("POST", "/v0/topics/jobs/extend", {"node": "w", "seqs": [2], "lease_ms": 1000})
    visit("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [2]})
    assert visit("GET", "/v0/topics/jobs")["queue"]


def _visit_routers(visit: Visit) -> None:
    visit("PUT", "/v0/routers/r", {"source": "log", "dest": "copy", "filter": "t*"}, wanted=201)
    visit("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"})
    visit("PUT", "/v0/routers/s", {"source": "log", "dest": "copy2"}, wanted=201)
    visit("GET", "/v0/routers/r")
    assert visit("GET", "/v0/routers?page_size=1")["next_cursor"]
    visit("DELETE", "/v0/routers/r")


def _visit_bulk(visit: Visit) -> None:
    rows = arrow_stream({"data": ["1", "2"]})
    visit("POST", "/v0/topics/bulk/append", arrow=rows, wanted=201)
    visit("POST", "/v0/topics/bulk/append", arrow=rows)
    visit("POST", "/v0/topics/bulk/scan")
    snapshot = visit("GET", "/v0/topics/bulk/segments")["snapshot"]
    visit("POST", f"/v0/topics/bulk/segments/{snapshot}/renew")
    visit("DELETE", f"/v0/topics/bulk/segments/{snapshot}")
    visit("POST", "/v0/topics/bulk/delete", {"before_seq": 2})
    assert visit("GET", "/v0/topics/bulk/ledger")["ranges"]
    visit("PUT", "/v0/topics/bulk/cursors/c", {"seq": 1}, wanted=201)
    visit("PUT", "/v0/topics/bulk/cursors/c", {"seq": 2})
    visit("GET", "/v0/topics/bulk/cursors/c")
    visit("GET", "/v0/topics/bulk/cursors")
    visit("DELETE", "/v0/topics/bulk/cursors/c")
    visit("PUT", "/v0/stages/s/parts/0?topic=bulk", arrow=rows)
    visit("POST", "/v0/stages/s/commit", {"identity": {"id": "i", "batch": 1}, "parts": [0]})
    visit("DELETE", "/v0/stages/s")


# --- who gets it, and when ------------------------------------------------------------------------------


def test_no_key_is_needed_unless_the_probes_need_one(start: Start) -> None:
    open_app = start(api_keys="secret")
    assert open_app.call("GET", "/v0/openapi.json").status == 200
    guarded = start(api_keys="secret", probe_auth=True)
    assert guarded.call("GET", "/v0/openapi.json").status == 401
    answer = guarded.call("GET", "/v0/openapi.json", Authorization="Bearer secret")
    assert answer.json["paths"]["/v0/health"]["get"]["security"] == [{"bearer": []}]


def test_scopes_are_told(document: Any) -> None:
    paths = document["paths"]
    assert paths["/v0/topics/{topic}/claim"]["post"]["security"] == [{"bearer": ["read", "write"]}]
    assert {"token": []} in paths["/v0/watch/{wid}"]["get"]["security"]
    assert paths["/v0/health"]["get"]["security"] == []


def test_it_is_made_only_when_somebody_asks() -> None:
    check = (
        "import sys, topics.cli.serve, topics.http.app; sys.exit('topics.http.openapi.models' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_route_without_a_description_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        build([Route(method="GET", template="/v0/elsewhere", handler=lambda exchange: None)])
