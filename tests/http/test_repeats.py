import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.http.exchange import Exchange
from topics.http.repeats import Repeat
from topics.http.routing import Body, Route

ROUTE = Route(method="POST", template="/v0/topics/:topic", handler=lambda exchange: None, body=Body.REQUIRED)


def seen(head, body, headers):
    exchange = Exchange(None, b"POST", b"/v0/topics/a", dict(headers))
    exchange.route, exchange.name, exchange.body = ROUTE, "a", body
    exchange.received, exchange.started, exchange.complete = len(body), 1.0, True
    return Repeat.of(exchange, head + body)


class FakeConnection:
    class edge:  # noqa: N801
        max_body_bytes = 1000


HEAD = b"POST /v0/topics/a HTTP/1.1\r\nX: 12\r\nContent-Length: %b\r\nContent-Type: application/json\r\n\r\n"
HEADERS = {b"x": b"12", b"content-length": b"2", b"content-type": b"application/json"}


@pytest.fixture(scope="module")
def repeat():
    found = seen(HEAD % b"2", b"{}", HEADERS)
    assert found is not None
    return found


def test_the_same_head_with_another_length(repeat):
    exchange = repeat.match(FakeConnection, HEAD % b"5" + b"[1,2]")
    assert (exchange.body, exchange.name, exchange.method, exchange.route) == (b"[1,2]", "a", "POST", ROUTE)
    assert exchange.complete
    assert exchange.header(b"x") == b"12"


@pytest.mark.parametrize(
    "data",
    [
        HEAD % b"5" + b"[1,2",
        HEAD % b"5" + b"[1,2]P",
        HEAD % b"0",
        HEAD % b"",
        HEAD % b"+2" + b"{}",
        HEAD % b"2 " + b"{}",
        HEAD % b"2, 2" + b"{}",
        HEAD % b"1001" + bytes(1001),
        HEAD.replace(b"/a", b"/b") % b"2" + b"{}",
        HEAD.replace(b"json\r", b"xml\r") % b"2" + b"{}",
        HEAD.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") % b"2" + b"{}",
        b"",
        HEAD[:10],
    ],
)
def test_everything_else_is_left_to_the_parser(repeat, data):
    assert repeat.match(FakeConnection, data) is None


@pytest.mark.parametrize("name", [b"expect", b"upgrade", b"transfer-encoding"])
def test_requests_the_parser_has_to_see(name):
    assert seen(HEAD % b"2", b"{}", {**HEADERS, name: b"x"}) is None


@given(st.binary(max_size=60))
def test_any_bytes(data):
    found = seen(HEAD % b"2", b"{}", HEADERS)
    exchange = found.match(FakeConnection, HEAD % b"%d" % len(data) + data)
    assert (exchange is None) if not data else (exchange.body == data)
    assert found.match(FakeConnection, data) is None


@pytest.mark.parametrize("keys", ["", "k,other:r"])
def test_a_long_conversation(serve, keys):
    """Alike and not alike, whole and in pieces, allowed and refused: always the right answer."""

    def echo(exchange):
        exchange.reply(exchange.name.encode() + b"=" + exchange.body)

    route = Route(method="POST", template="/v0/topics/:topic", handler=echo, scopes=2, body=Body.REQUIRED)
    running = serve([route], keys=keys, max_body_bytes=50)
    steps = st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 50),
            st.sampled_from(["k", "k", "k", "other"]),
            st.integers(0, 150),
        ),
        min_size=1,
        max_size=12,
    )

    @settings(max_examples=60, deadline=None)
    @given(steps)
    def talk(steps):
        wire = running.connect()
        for name, size, key, cut in steps:
            body = b"x" * size
            data = (
                f"POST /v0/topics/{name} HTTP/1.1\r\nAuthorization: Bearer {key}\r\n"
                f"Connection: keep-alive\r\nContent-Length: {size}\r\nContent-Type: application/json\r\n\r\n"
            ).encode() + body
            wire.send(data[:cut])
            wire.send(data[cut:])
            answer = wire.read()
            if keys and key == "other":
                assert answer.status == 403
            else:
                assert answer.body == name.encode() + b"=" + body
        wire.close()

    talk()
