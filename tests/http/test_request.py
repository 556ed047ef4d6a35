"""What is read off a request, and how it is named in logs."""

import pytest

from topics.http.exchange import Exchange


def exchange_for(target, headers=None):
    return Exchange(None, b"GET", target, headers or {})


def test_query_parameters_are_decoded_and_the_first_wins():
    exchange = exchange_for(b"/a?x=1&x=2&y=%C3%A9+z&empty=&bare&bad=%ff#f?x=3")
    assert exchange.query("x") == "1"
    assert exchange.query("y") == "é z"
    assert exchange.query("empty") == ""
    assert exchange.query("bare") == ""
    assert exchange.query("bad") == "\ufffd"
    assert exchange.query("none") is None
    assert exchange.path == b"/a"
    assert exchange_for(b"/a").query("x") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("1", True), ("false", False), ("0", False), ("yes", None), ("", None), ("TRUE", None)],
)
def test_flags(value, expected):
    exchange = exchange_for(b"/a?f=" + value.encode())
    for default in (True, False):
        assert exchange.query_flag("f", default) is (default if expected is None else expected)


@pytest.mark.parametrize("sent", [b"a", b"req-1.2:3/4+5=6@7", b"x" * 128])
def test_an_id_that_a_client_sent_comes_back(sent):
    request = exchange_for(b"/", {b"x-request-id": sent})
    assert request.given_id() == sent
    assert request.ensure_id() == sent.decode()
    assert request.with_own([(b"A", b"b")]) == [(b"A", b"b"), (b"X-Request-Id", sent)]


@pytest.mark.parametrize("sent", [b"", b"-a", b"a b", b"a\tb", b"x" * 129, "é".encode()])
def test_an_id_that_could_break_a_log_is_as_good_as_none(sent):
    request = exchange_for(b"/", {b"x-request-id": sent})
    assert request.given_id() is None
    assert request.with_own(None) is None


def test_a_request_that_is_talked_about_gets_an_id_of_its_own():
    shared = {b"accept": b"*/*"}
    request = exchange_for(b"/", shared)
    made = request.ensure_id()
    assert request.ensure_id() == made
    assert not request.plain
    # Requests that look alike share their headers.
    assert shared == {b"accept": b"*/*"}


@pytest.mark.parametrize(
    ("sent", "trace"),
    [
        (b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", "a" * 32),
        (b"00-" + b"0" * 32 + b"-" + b"b" * 16 + b"-01", None),
        (b"nonsense", None),
    ],
)
def test_the_callers_trace(sent, trace):
    assert exchange_for(b"/", {b"traceparent": sent}).trace_id() == trace
