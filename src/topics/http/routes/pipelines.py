"""Pipelines over HTTP: what they say of themselves, and what is known of all."""

from functools import partial
from typing import Any

import msgspec

from topics.flow.pipelines import Report
from topics.http.admission.auth import READ, WRITE
from topics.http.exchange import Exchange
from topics.http.routes.fields import PAGING, page, start_of_page
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Body


class PipelineBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    state: str
    kind: str = "pipeline"
    why: str | None = None


@routes.add("GET", "/v0/pipelines", scopes=READ, query=PAGING)
def list_pipelines(service: Service, exchange: Exchange) -> None:
    after, prefix, key = start_of_page(exchange), exchange.query("prefix") or "", exchange.key
    found = (
        report
        for report in service.node.pipelines.all()
        if report.name > after and report.name.startswith(prefix) and (key is None or key.allows(report.name))
    )
    answer(exchange, page(exchange, "pipelines", found, partial(_entry, service)))


@routes.add("PUT", "/v0/pipelines/:pipeline", scopes=WRITE, body=Body.REQUIRED, accepts=PipelineBody)
def tell(service: Service, exchange: Exchange, body: PipelineBody) -> None:
    exchange.refuse_unknown_fields()

    def done(report: Report, created: bool) -> None:
        answer(exchange, {**_entry(service, report), "created": created}, 201 if created else 200)

    service.node.pipelines.tell(exchange.name, body.kind, body.state, body.why or "", done, exchange.fail)


@routes.add("DELETE", "/v0/pipelines/:pipeline", scopes=WRITE)
def forget(service: Service, exchange: Exchange) -> None:
    exchange.refuse_unknown_fields()
    name = exchange.name
    service.node.pipelines.forget(
        name, lambda deleted: answer(exchange, {"pipeline": name, "deleted": deleted}), exchange.fail
    )


def _entry(service: Service, report: Report) -> dict[str, Any]:
    return {
        "pipeline": report.name,
        "kind": report.kind,
        "state": report.state,
        "why": report.why or None,
        "since_ms": report.since_ms,
        "age_ms": max(service.engine.now() - report.told_ms, 0),
    }
