"""Pipelines over HTTP: what they say of themselves, and what is known of all."""

from typing import Any

import msgspec

from topics.flow.pipelines import Pipelines, Report
from topics.http.admission.auth import READ, WRITE
from topics.http.exchange import Exchange
from topics.http.routes.fields import PAGING, page, start_of_page
from topics.http.routes.service import Service, answer
from topics.http.routing import Body, Route


class PipelineBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    state: str
    kind: str = "pipeline"
    why: str | None = None


class PipelineRoutes:
    def __init__(self, service: Service, pipelines: Pipelines) -> None:
        self._engine = service.engine
        self._pipelines = pipelines

    def routes(self) -> list[Route]:
        one = "/v0/pipelines/:pipeline"
        return [
            Route("GET", "/v0/pipelines", self.list, scopes=READ, query=PAGING),
            Route("PUT", one, self.tell, scopes=WRITE, body=Body.REQUIRED, accepts=PipelineBody),
            Route("DELETE", one, self.forget, scopes=WRITE),
        ]

    def list(self, exchange: Exchange) -> None:
        after, prefix, key = start_of_page(exchange), exchange.query("prefix") or "", exchange.key
        found = (
            report
            for report in self._pipelines.all()
            if report.name > after
            and report.name.startswith(prefix)
            and (key is None or key.allows(report.name))
        )
        answer(exchange, page(exchange, "pipelines", found, self._entry))

    def tell(self, exchange: Exchange, body: PipelineBody) -> None:
        exchange.refuse_unknown_fields()

        def done(report: Report, created: bool) -> None:
            answer(exchange, {**self._entry(report), "created": created}, 201 if created else 200)

        self._pipelines.tell(exchange.name, body.kind, body.state, body.why or "", done, exchange.fail)

    def forget(self, exchange: Exchange) -> None:
        exchange.refuse_unknown_fields()
        name = exchange.name
        self._pipelines.forget(
            name, lambda deleted: answer(exchange, {"pipeline": name, "deleted": deleted}), exchange.fail
        )

    def _entry(self, report: Report) -> dict[str, Any]:
        return {
            "pipeline": report.name,
            "kind": report.kind,
            "state": report.state,
            "why": report.why or None,
            "since_ms": report.since_ms,
            "age_ms": max(self._engine.now() - report.told_ms, 0),
        }
