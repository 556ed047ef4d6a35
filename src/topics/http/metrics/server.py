"""Figures of the server: how long routes take, what is refused, who is connected, what the process uses."""

import os
import platform
import resource
import time
from collections.abc import Iterator

import topics
from topics.http.metrics.family import (
    Family,
    Sample,
    counter,
    gauge,
    histogram,
    histogram_samples,
    labelled,
    labels,
)
from topics.http.routes.service import Service
from topics.http.server import Server
from topics.values import Histogram


def request_families(server: Server, service: Service) -> Iterator[Family]:
    log, context, governor = server.request_log, server.context, service.node.governor
    yield Family(
        "topics_http_request_duration_seconds",
        "histogram",
        "Time from a complete request to its answer, or to the start of its stream.",
        _durations(server),
    )
    yield histogram(
        "topics_http_long_poll_seconds", "Time that requests waited which had asked to wait.", log.waits
    )
    yield labelled("counter", "topics_http_errors_total", "Requests refused.", "code", log.errors)
    turned_away = context.connection_limit.turned_away
    for name, text, count in (
        ("abandoned", "Requests whose client left before the answer.", log.abandoned_requests),
        ("slow_requests", "Requests logged as slow.", log.slow_requests),
        ("connections_accepted", "Connections accepted.", log.connections),
        ("connections_refused", "Connections turned away because all places were taken.", turned_away),
    ):
        yield counter(f"topics_http_{name}_total", text, count)
    busy = sum(connection.busy for connection in context.connections)
    for name, text, number in (
        ("connections", "Open connections.", context.open_connections),
        ("requests_in_flight", "Requests not yet answered.", busy),
        ("long_polls", "Reads waiting for a record.", len(service.parked)),
        ("held_writes", "Writes that let readers of higher priority pass.", service.node.pacer.held),
    ):
        yield gauge(f"topics_http_{name}", text, number)
    text = "How late the event loop ran, sampled many times a second."
    yield histogram("topics_event_loop_lag_seconds", text, governor.lags)
    yield gauge("topics_load_level", "Load shedding: 0 is calm, 4 refuses requests.", governor.level)


def _durations(server: Server) -> Iterator[Sample]:
    for route in server.routes:
        yield from _by_status(route.timings, method=route.method, route=route.template)
    yield from _by_status(server.request_log.unrouted, method="any", route="none")


def _by_status(timings: tuple[Histogram, ...], **values: str) -> Iterator[Sample]:
    """Only what has been seen: most routes never answer with most statuses."""
    for number, measured in enumerate(timings):
        if any(measured.counts):
            yield from histogram_samples(measured, **values, status=f"{number}xx")


def process_families(started_s: float) -> Iterator[Family]:
    """Under the names every Prometheus client gives them, and what is running."""
    about = labels(version=topics.__version__, python=platform.python_version())
    yield Family("topics_build_info", "gauge", "Always 1; its labels say what is running.", [(about, 1)])
    yield counter("process_cpu_seconds_total", "CPU time used.", time.process_time())
    yield gauge("process_start_time_seconds", "When the process started.", started_s)
    with open("/proc/self/statm", "rb") as file:
        virtual, resident = file.read().split()[:2]
    for name, pages in (("resident", resident), ("virtual", virtual)):
        size = int(pages) * os.sysconf("SC_PAGE_SIZE")
        yield gauge(f"process_{name}_memory_bytes", f"Memory, {name}.", size)
    # One of them is the directory being read.
    yield gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")) - 1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield gauge("process_max_fds", "As many may be open.", most)
