"""What the server answers is what the document says: every answer and every detail of an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.http.openapi.described import ARROWS, JSON, Described
from tests.http.streaming import RunningApp
from tests.support import Answer, Wire
from tests.support.arrow import arrow_stream

Start = Callable[..., RunningApp]


class Visit:
    """Calls the server and holds what it says against the document: no key may be left over."""

    def __init__(self, app: RunningApp, described: Described) -> None:
        self._app = app
        self._described = described
        self._fractions = set(_fractions(described.schemas))
        self.visited: set[tuple[str, int]] = set()

    def __call__(
        self, method: str, path: str, body: Any = None, *, arrow: bytes | None = None, wanted: int = 200
    ) -> Any:
        wire = Wire(self._app.address)
        try:
            if arrow is not None:
                answer = wire.request(method, path, arrow, {"Content-Type": ARROWS})
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
        operation = self._described.by_route[method, match.route.template]
        self.visited.add((operation["operationId"], answer.status))
        content = self._described.answer(operation, answer.status)["content"]
        media = answer.headers["content-type"].partition(";")[0]
        assert media in content, f"{method} {path} answers with {media}"
        if media != JSON:
            return None
        self._described.validate(content[JSON]["schema"], answer.json)
        # To a schema 1.0 is an integer.
        assert set(_with_fractions(answer.json)) <= self._fractions
        return answer.json


def _fractions(schema: Any) -> Iterator[str]:
    """Names of the properties that need not be integers."""
    for name, inner in _items(schema):
        if isinstance(inner, dict) and inner.get("type") == "number":
            yield name
        yield from _fractions(inner)


def _with_fractions(value: Any) -> Iterator[str]:
    for name, inner in _items(value):
        if isinstance(inner, float):
            yield name
        yield from _with_fractions(inner)


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, list):
        return (("", one) for one in value)
    return value.items() if isinstance(value, dict) else ()


def test_every_answer_is_as_described(app: RunningApp, described: Described) -> None:
    visit = Visit(app, described)
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/openapi.json", "/v0/metrics"):
        visit("GET", path)
    visit("GET", "/v0/info")
    visit("GET", "/v0/whoami")
    _visit_overview(visit)
    visit("GET", "/v0/admin/system")
    _visit_topics(visit)
    _visit_queues(visit)
    _visit_routers(visit)
    _visit_bulk(visit)
    _visit_operations(visit)
    session = visit("POST", "/v0/watch", {"topics": {"log": {}}})
    visit("POST", "/v0/tickets", {"path": session["stream_url"]})
    reader = app.events(session["wid"])
    assert reader.status == 200
    # The other streams are opened in tests of their own.
    elsewhere = {("watchStream", 200), ("tail", 200), ("work", 200), ("socket", 101)}
    assert visit.visited | elsewhere == {
        (operation["operationId"], int(status))
        for operation in described.by_route.values()
        for status in operation["responses"]
        if int(status) < 400
    }


def _visit_overview(visit: Visit) -> None:
    """With a row and an item that have all there is to tell."""
    assert visit("GET", "/v0/overview")["topics"] == []
    visit("PUT", "/v0/topics/seen", {"cap_records": 1}, wanted=201)
    visit("POST", "/v0/topics/seen", {"records": [{"data": 1}, {"data": 2}]})
    visit("PUT", "/v0/topics/seen/cursors/c", {"seq": 0}, wanted=201)
    visit("POST", "/v0/topics/seen/diff", {})
    assert visit("GET", "/v0/overview")["topics"][0]["lag"]["records"] == 2
    visit("DELETE", "/v0/topics/seen")


def test_every_detail_of_an_error_is_described(start: Start, described: Described) -> None:
    visit = Visit(start(max_topics=2), described)
    row = arrow_stream({"data": ["1"]})
    visit("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"}, wanted=201)
    visit("POST", "/v0/topics/full/append", arrow=arrow_stream({"data": ["1"]}, {"data": ["2"]}), wanted=422)
    visit("POST", "/v0/topics/full/append", arrow=arrow_stream({"data": ["1", "2"]}), wanted=400)
    visit("POST", "/v0/topics/none/append?create=false", arrow=row, wanted=404)
    visit("POST", "/v0/topics/a%20b/append", arrow=row, wanted=400)
    visit("POST", "/v0/topics/other/append", arrow=row, wanted=201)
    visit("POST", "/v0/topics/third/append", arrow=row, wanted=429)
    visit("GET", "/v0/topics/full/cursors/none", wanted=404)
    visit("GET", "/v0/topics/other/records/2", wanted=404)
    visit("POST", "/v0/topics/other/delete", {"before_seq": 2})
    visit("GET", "/v0/topics/other/records/1", wanted=410)
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
    assert visit("GET", "/v0/topics/log/records?last=2&tag=t*&include_tags=true")["records"]
    assert visit("GET", "/v0/topics/log/records/5")["record"]["$tag"] == "t"
    visit("PUT", "/v0/topics/warned", {"lease_ms": 5000}, wanted=201)
    assert visit("PUT", "/v0/topics/log?dry_run=true", {"cap_records": 1})["removes"] == 2
    visit("POST", "/v0/topics/log/delete", {"match": "t", "dry_run": True})
    visit("POST", "/v0/topics/log/delete", {"match": "t"})
    visit("GET", "/v0/topics/log")
    assert visit("GET", "/v0/topics?page_size=1")["next_cursor"]
    visit("GET", "/v0/topics?detail=true")
    visit("DELETE", "/v0/topics/other?dry_run=true")
    visit("DELETE", "/v0/topics/other")


def _visit_queues(visit: Visit) -> None:
    visit("PUT", "/v0/topics/jobs", {"type": "queue"}, wanted=201)
    visit("POST", "/v0/topics/jobs", {"records": [{"data": n, "tag": "t", "meta": {}} for n in range(4)]})
    assert visit("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 3})["claimed"]
    visit("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": [1, 9]})
    visit("POST", "/v0/topics/jobs/extend", {"node": "w", "seqs": [2], "lease_ms": 1000})
    visit("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [2]})
    assert visit("GET", "/v0/topics/jobs")["queue"]
    assert visit("GET", "/v0/topics?detail=true")["topics"][0]["queue"]
    assert visit("GET", "/v0/topics/jobs/leases")["leases"]
    assert visit("POST", "/v0/topics/log/redrive", {"max": 1})["skipped"]


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
    assert visit("GET", "/v0/topics/bulk/ledger?times=true")["ranges"]
    assert visit("GET", "/v0/topics/bulk/ledger?buckets=3")["buckets"]
    visit("PUT", "/v0/topics/bulk/cursors/c", {"seq": 1}, wanted=201)
    visit("PUT", "/v0/topics/bulk/cursors/c", {"seq": 2})
    visit("GET", "/v0/topics/bulk/cursors/c")
    visit("PUT", "/v0/pipelines/lake", {"state": "running", "kind": "archive"}, wanted=201)
    visit("PUT", "/v0/pipelines/lake", {"state": "failed", "why": "no space"})
    visit("GET", "/v0/pipelines?page_size=1")
    visit("DELETE", "/v0/pipelines/lake")
    visit("GET", "/v0/topics/bulk/cursors")
    visit("DELETE", "/v0/topics/bulk/cursors/c")
    visit("PUT", "/v0/topics/bulk/cursors/d", {"seq": 2}, wanted=201)
    visit("PUT", "/v0/topics/gone", {}, wanted=201)
    for consumer in ("c", "d"):
        visit("PUT", f"/v0/topics/gone/cursors/{consumer}", {"seq": 0}, wanted=201)
    visit("DELETE", "/v0/topics/gone")
    assert visit("GET", "/v0/topics/gone/cursors/c")["lag"] is None
    assert visit("GET", "/v0/topics/gone/cursors")["head_seq"] is None
    assert "next_cursor" in visit("GET", "/v0/cursors?page_size=2")
    visit("PUT", "/v0/stages/s/parts/0?topic=bulk", arrow=rows)
    visit("POST", "/v0/stages/s/commit", {"identity": {"id": "i", "batch": 1}, "parts": [0]})
    visit("DELETE", "/v0/stages/s")
