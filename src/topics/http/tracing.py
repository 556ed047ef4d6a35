"""Optional OpenTelemetry traces: a span for each request, within the caller's trace if there is one.

    caller's span ─▶ POST /v0/topics/:topic ─▶ commit           from handing a change over to its answer
                     recovery, checkpoint                       traces of their own

Off by default, and then none of this is imported. Where spans go, and which, is for the standard OTEL_*
variables to say.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from time import time_ns
from typing import TYPE_CHECKING, Any

import topics
from topics.core import ConfigError
from topics.http.exchange import Exchange
from topics.http.request import Request
from topics.http.request_log import shown_name, shown_route
from topics.http.routing import Route

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

# A collector that does not answer gets no more time than this when the server stops.
_LAST_WORDS_S = 2.0
_LAST_PAUSE_S = 0.2
_SERVER_ERROR = 500


class Tracing:
    """Spans are made when a request is over, from the times noted on the way."""

    def __init__(self, provider: "TracerProvider", exporter: "SpanExporter") -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._exporter = exporter
        self._tracer = provider.get_tracer("topics", topics.__version__)
        self._propagator = TraceContextTextMapPropagator()
        self._server_kind = SpanKind.SERVER
        self._failure = Status(StatusCode.ERROR)
        self._within = set_span_in_context
        # When the handler was done with a request whose answer has to wait for a commit.
        self._handed_over: dict[Request, int] = {}

    def instrument(self, routes: list[Route]) -> list[Route]:
        """Return the routes with handlers that note when they are done."""
        return [route if route.is_async else self._noting(route) for route in routes]

    def _noting(self, route: Route) -> Route:
        handler = route.handler

        def noting(exchange: Exchange, *body: Any) -> None:
            handler(exchange, *body)
            if not exchange.answered and not exchange.parked:
                self._handed_over[exchange] = time_ns()

        return replace(route, handler=noting)

    def finished(self, request: Request, status: int, elapsed_s: float) -> None:
        ended = time_ns()
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "http.route": shown_route(request.route),
            "http.response.status_code": status,
        }
        name, known_id = shown_name(request), request.given_id()
        if name is not None:
            attributes["topics.name"] = name
        if known_id is not None:
            attributes["topics.request_id"] = known_id.decode()
        span = self._tracer.start_span(
            f"{request.method} {shown_route(request.route)}",
            self._callers(request.headers),
            self._server_kind,
            attributes,
            start_time=ended - int(elapsed_s * 1e9),
        )
        if status >= _SERVER_ERROR:
            span.set_status(self._failure)
        handed_over = self._handed_over.pop(request, None)
        # A small write is looked at together with others: if it is refused then, nothing was handed over.
        if handed_over is not None and status // 100 != 4:
            commit = self._tracer.start_span("commit", self._within(span), start_time=handed_over)
            commit.end(ended)
        span.end(ended)

    def abandoned(self, request: Request) -> None:
        self._handed_over.pop(request, None)

    def _callers(self, headers: Mapping[bytes, bytes]) -> "Context":
        names = (b"traceparent", b"tracestate")
        carrier = {name.decode(): headers[name].decode("latin-1") for name in names if name in headers}
        return self._propagator.extract(carrier)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Something the server does of its own accord."""
        with self._tracer.start_as_current_span(name):
            yield

    def stop(self) -> None:
        """Send what has not been sent; this may take a while, but not for ever."""
        last_words = Thread(target=self._provider.shutdown, daemon=True)
        last_words.start()
        last_words.join(_LAST_WORDS_S)
        if last_words.is_alive():
            # Ends the pause between two attempts. An attempt under way cannot be ended, only left behind.
            self._exporter.shutdown()
            last_words.join(_LAST_PAUSE_S)


def start_tracing(environment: Mapping[str, str]) -> Tracing:
    """Spans go out in the background, over HTTP, to whom OTEL_EXPORTER_OTLP_ENDPOINT names."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError("TOPICS_TRACING needs `pip install topics-log[otel]`") from None
    named = "OTEL_SERVICE_NAME" in environment or "service.name" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {"service.name": "topics"})
    # The server says itself when it stops; an exit hook would only wait for the same once more.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, exporter)
