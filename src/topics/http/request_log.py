"""Sees every request end: counts it, times it, and says so when it was slow, failed, or asked for.

What happens to an ordinary request here costs a fraction of a microsecond: one look at the clock, one
bisection, two additions. Everything else happens to those few that are worth a line.
"""

import logging
from bisect import bisect_left
from math import inf
from time import perf_counter
from typing import Protocol

from topics.core import LATENCY_BOUNDS_S, STATUS_BY_CODE, ApiError, Histogram, Settings
from topics.http.request import Request
from topics.http.routing import Route, latencies

slow_log = logging.getLogger("topics.http")
access_log = logging.getLogger("topics.access")

# Lines about trouble come at most this often: a server in trouble has better things to do.
_LINES_PER_SECOND = 20
# Path parameters that may be shown. The id of a watch session is a kind of key, and stays unsaid.
_SHOWN = (":topic", ":router", ":q")


class Tracer(Protocol):
    """Makes spans of requests. The HTTP side itself knows nothing about traces."""

    def finished(self, request: Request, status: int, elapsed_s: float) -> None: ...

    def abandoned(self, request: Request) -> None: ...


class RequestLog:
    def __init__(self, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._slow_s = settings.slow_request_ms / 1000 or inf
        self._logs_all = settings.access_log
        self._tracer: Tracer | None = None
        # From this duration on a request is looked at more closely.
        self.notable_s = 0.0 if self._logs_all else self._slow_s
        self._window = 0.0
        self._lines = 0
        # Requests that found no route, by class of status.
        self.unrouted = latencies()
        # Requests that waited for something to happen, as they asked to.
        self.waits = Histogram(LATENCY_BOUNDS_S)
        self.errors = dict.fromkeys(STATUS_BY_CODE, 0)
        self.abandoned_requests = 0
        self.slow_requests = 0
        self.connections = 0

    def trace(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.notable_s = 0.0

    def accepted(self) -> None:
        """A client has connected."""
        self.connections += 1

    def finished(self, request: Request, status: int, waited: bool) -> None:
        """It is about to be answered; what is decided here can still travel with the answer."""
        elapsed = perf_counter() - request.started
        if waited:
            self.waits.observe(elapsed)
        else:
            histogram = request.route.timings[status // 100]  # type: ignore[union-attr]
            histogram.counts[bisect_left(LATENCY_BOUNDS_S, elapsed)] += 1
            histogram.total += elapsed
        if elapsed >= self.notable_s:
            self._note(request, status, elapsed, waited)

    def failed(self, request: Request, error: ApiError, status: int, waited: bool) -> None:
        self.errors[error.code] += 1
        # Refused before its handler was called.
        elapsed = perf_counter() - request.started if request.started else 0.0
        route = request.route
        timings = self.unrouted if route is None else route.timings
        (self.waits if waited else timings[status // 100]).observe(elapsed)
        # With a cause, it was logged where it was caught, together with its traceback.
        if error.code == "internal" and error.__cause__ is None and self._may_speak():
            slow_log.error("request failed: %s", error.message, extra=log_fields(request, status, elapsed))
        if elapsed >= self.notable_s:
            self._note(request, status, elapsed, waited)

    def abandoned(self, request: Request) -> None:
        """The client has gone without an answer."""
        self.abandoned_requests += 1
        if self._tracer is not None:
            self._tracer.abandoned(request)

    def _note(self, request: Request, status: int, elapsed: float, waited: bool) -> None:
        if elapsed >= self._slow_s and not waited:
            self.slow_requests += 1
            if self._may_speak():
                slow_log.warning("slow request", extra=log_fields(request, status, elapsed))
        if self._logs_all:
            access_log.info("request", extra=log_fields(request, status, elapsed))
        if self._tracer is not None:
            self._tracer.finished(request, status, elapsed)

    def _may_speak(self) -> bool:
        now = perf_counter()
        if now - self._window >= 1.0:
            self._window = now
            self._lines = 0
        self._lines += 1
        if self._lines == _LINES_PER_SECOND + 1:
            slow_log.warning("more of the kind; they are counted, not shown")
        return self._lines <= _LINES_PER_SECOND


def shown_name(request: Request) -> str | None:
    """The topic or router a request is about."""
    route = request.route
    shown = route is not None and any(f"/{part}" in route.template for part in _SHOWN)
    return request.name if shown else None


def shown_route(route: Route | None) -> str:
    """The path as the documentation writes it: the same for all topics, and without query or secrets."""
    return "none" if route is None else route.template


def log_fields(request: Request, status: int, elapsed: float | None = None) -> dict[str, object]:
    """What a line about a request says beside its message."""
    fields: dict[str, object] = {
        "request_id": request.ensure_id(),
        "method": request.method,
        "route": shown_route(request.route),
        "status": status,
        "ms": None if elapsed is None else round(elapsed * 1000, 3),
        "name": shown_name(request),
        "client": request.client(),
        "key": None if request.key is None else request.key.name,
        "trace_id": request.trace_id(),
    }
    return {"fields": {name: value for name, value in fields.items() if value is not None}}
