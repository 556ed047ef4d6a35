"""How long requests take, what is refused, how busy the loop is, what the process uses."""

from __future__ import annotations

from tests.http.metrics.scraping import scrape
from tests.http.streaming import RunningApp
from tests.support import raw_request


def test_durations_by_route_method_and_status(app: RunningApp) -> None:
    app.write("a", 1)
    app.write("b", 1)
    app.call("POST", "/v0/topics/a", {"records": 1})
    app.call("POST", "/v0/topics/none/diff", {})
    found = scrape(app)
    name = "topics_http_request_duration_seconds"
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] == 2
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic",status="4xx"}}'] == 1
    assert found[f'{name}_count{{method="POST",route="/v0/topics/:topic/diff",status="4xx"}}'] == 1
    assert found[f'{name}_sum{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] > 0
    bucket = f'{name}_bucket{{method="POST",route="/v0/topics/:topic",status="2xx",le="+Inf"}}'
    assert found[bucket] == 2
    assert not any('status="5xx"' in series for series in found)
    assert found['topics_http_errors_total{code="invalid_request"}'] == 1
    assert found['topics_http_errors_total{code="topic_not_found"}'] == 1
    # The one that is asking.
    assert found["topics_http_requests_in_flight"] == found["topics_http_connections"] == 1
    assert found["topics_http_connections_accepted_total"] == 5


def test_writes_that_are_committed_together_are_all_counted(app: RunningApp) -> None:
    app.write("a", 1)
    wires = [app.wire() for _ in range(5)]
    for wire in wires:
        wire.send(raw_request("POST", "/v0/topics/a", b'{"records":[{"data":2}]}'))
    assert [wire.read().status for wire in wires] == [200] * 5
    found = scrape(app)
    name = "topics_http_request_duration_seconds_count"
    assert found[f'{name}{{method="POST",route="/v0/topics/:topic",status="2xx"}}'] == 6


def test_who_holds_the_loop(app: RunningApp) -> None:
    """Each request that a handler answers at once, and each step of those that take several."""
    name = "topics_loop_stall_seconds"
    app.write("t", 1)
    before = scrape(app)
    assert before[f'{name}{{method="any",route="none"}}'] >= 0
    routes = {route.template: route for route in app.app.server.routes if route.method == "GET"}
    # Answered by its handler at once, while the two below are taken in steps.
    app.call("GET", "/v0/topics/t")
    assert 0 < scrape(app)[f'{name}{{method="GET",route="/v0/topics/:topic"}}'] < 60
    app.app.node.upkeep.holds.note(6.0)
    assert scrape(app)[f'{name}{{method="any",route="upkeep"}}'] == 6
    routes["/v0/topics/:topic"].holds.note(7.0)
    routes["/v0/topics/:topic"].holds.note(5.0)
    assert scrape(app)[f'{name}{{method="GET",route="/v0/topics/:topic"}}'] == 7
    assert 0 < before[f'{name}{{method="POST",route="/v0/topics/:topic"}}'] < 60
    assert 0 < scrape(app)[f'{name}{{method="GET",route="/v0/metrics"}}'] < 60
