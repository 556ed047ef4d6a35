"""Figures of the HTTP side: how long routes take, what is refused, who is connected, how busy the loop is."""

from __future__ import annotations

from collections.abc import Iterator

from topics.http.metrics.family import Family, Sample, counter, gauge, histogram_samples, labelled
from topics.http.metrics.scrape import Scrape
from topics.http.routes.service import Service
from topics.http.server import Server
from topics.values.histogram import Histogram


class HttpFigures:
    def __init__(self, server: Server, service: Service) -> None:
        self._server = server
        self._service = service

    def families(self, _: Scrape) -> Iterator[Family]:
        request_log, context, governor = (
            self._server.request_log,
            self._server.context,
            self._service.governor,
        )
        yield Family(
            "topics_http_request_duration_seconds",
            "histogram",
            "Time from a complete request to its answer, or to the start of its stream.",
            self._durations(),
        )
        yield Family(
            "topics_http_long_poll_seconds",
            "histogram",
            "Time that requests waited which had asked to wait.",
            histogram_samples(request_log.waits),
        )
        yield labelled("counter", "topics_http_errors_total", "Requests refused.", "code", request_log.errors)
        yield counter(
            "topics_http_abandoned_total",
            "Requests whose client left before the answer.",
            request_log.abandoned_requests,
        )
        yield counter(
            "topics_http_slow_requests_total", "Requests logged as slow.", request_log.slow_requests
        )
        yield counter(
            "topics_http_connections_accepted_total", "Connections accepted.", request_log.connections
        )
        yield counter(
            "topics_http_connections_refused_total",
            "Connections turned away because all places were taken.",
            context.connection_limit.turned_away,
        )
        yield gauge("topics_http_connections", "Open connections.", context.open_connections)
        busy = sum(connection.busy for connection in context.connections)
        yield gauge("topics_http_requests_in_flight", "Requests not yet answered.", busy)
        parked = len(self._service.parked)
        yield gauge("topics_http_long_polls", "Reads waiting for a record.", parked)
        held = self._service.pacer.held
        yield gauge("topics_http_held_writes", "Writes that let readers of higher priority pass.", held)
        yield Family(
            "topics_event_loop_lag_seconds",
            "histogram",
            "How late the event loop ran, sampled many times a second.",
            histogram_samples(governor.lags),
        )
        yield gauge("topics_load_level", "Load shedding: 0 is calm, 4 refuses requests.", governor.level)

    def _durations(self) -> Iterator[Sample]:
        for route in self._server.routes:
            yield from _by_status(route.timings, method=route.method, route=route.template)
        yield from _by_status(self._server.request_log.unrouted, method="any", route="none")


def _by_status(timings: tuple[Histogram, ...], **values: str) -> Iterator[Sample]:
    """Only what has been seen: most routes never answer with most statuses."""
    for number, histogram in enumerate(timings):
        if any(histogram.counts):
            yield from histogram_samples(histogram, **values, status=f"{number}xx")
