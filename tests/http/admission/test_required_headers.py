"""A body must be declared as what its route takes."""

import pytest

from topics.http.routing import Body, Route


def echo(exchange):
    exchange.reply(exchange.body)


@pytest.fixture
def bodies(serve):
    routes = [
        Route(method="POST", template="/required", handler=echo, body=Body.REQUIRED),
        Route(method="POST", template="/optional", handler=echo, body=Body.OPTIONAL),
        Route(method="POST", template="/never-empty", handler=echo, body=Body.NEVER_EMPTY),
        Route(method="POST", template="/arrow", handler=echo, body=Body.REQUIRED, arrow=True),
        Route(method="POST", template="/ignored", handler=echo),
        Route(method="GET", template="/ignored", handler=echo),
    ]
    return serve(routes, max_body_bytes=2_000_000).connect()


@pytest.mark.parametrize(
    "value",
    ["application/json", "Application/JSON; charset=utf-8", "application/json;x=1", "application/jsonl"],
)
def test_accepted_types(bodies, value):
    assert bodies.request("POST", "/required", b"{}", {"Content-Type": value}).body == b"{}"


@pytest.mark.parametrize("value", ["", "text/plain", "json", "application/vnd.apache.arrow.stream"])
def test_refused_types(bodies, value):
    answer = bodies.request("POST", "/required", b"{}", {"Content-Type": value})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_a_missing_type_is_refused_and_the_connection_goes_on(bodies):
    bodies.send(b"POST /required HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    assert bodies.read().status == 415
    assert bodies.request("POST", "/required", b"{}").status == 200


def test_it_is_told_which_types_there_are(bodies):
    told = bodies.request("POST", "/required", b"{}", {"Content-Type": "x"}).json["error"]["message"]
    assert told.endswith(" application/json")
    told = bodies.request("POST", "/arrow", b"{}", {"Content-Type": "x"}).json["error"]["message"]
    assert told.endswith(" application/json or application/vnd.apache.arrow.stream")


def test_arrow_only_where_it_is_understood(bodies):
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert bodies.request("POST", "/arrow", b"xx", arrow).status == 200
    assert bodies.request("POST", "/arrow", b"xx").status == 200


def test_empty_bodies(bodies):
    assert bodies.request("POST", "/optional").status == 200
    assert bodies.request("POST", "/optional", b"", {"Content-Type": "text/plain"}).status == 200
    assert bodies.request("POST", "/optional", b"x", {"Content-Type": "text/plain"}).status == 415
    assert bodies.request("POST", "/required").status == 415
    assert bodies.request("POST", "/required", b"").status == 200
    assert bodies.request("POST", "/never-empty").code == "invalid_request"
    assert bodies.request("POST", "/never-empty", b"").code == "invalid_request"


def test_a_body_that_its_route_does_not_look_at(bodies):
    assert bodies.request("GET", "/ignored", b"x", {"Content-Type": "text/plain"}).status == 200
    for value in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert bodies.request("POST", "/ignored", b"{}", {"Content-Type": value}).status == 415
        assert bodies.request("POST", "/ignored", b"", {"Content-Type": value}).status == 200
    assert bodies.request("POST", "/ignored", b"{}").status == 200
    assert bodies.request("POST", "/ignored", b"x").code == "invalid_request"
    assert bodies.request("POST", "/ignored", b"[]").code == "invalid_request"


def test_other_encodings(bodies):
    assert bodies.request("POST", "/required", b"{}", {"Content-Encoding": "identity"}).status == 200
    assert bodies.request("POST", "/required", b"{}", {"Content-Encoding": "br"}).status == 415
    assert bodies.request("POST", "/required", b"{}", {"Content-Encoding": "x-gzip"}).status == 415
