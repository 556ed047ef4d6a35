import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.http.exchange import Exchange
from topics.http.known_heads import KnownHeads
from topics.http.routing import Body, Route

ROUTE = Route(method="POST", template="/v0/topics/:topic", handler=lambda exchange: None, body=Body.REQUIRED)
HEAD = b"POST /v0/topics/a HTTP/1.1\r\nX: 12\r\nContent-Length: 2\r\nContent-Type: application/json"
HEADERS = {b"x": b"12", b"content-length": b"2", b"content-type": b"application/json"}


def remembered_exchange(body=b"{}", headers=HEADERS, **changes):
    exchange = Exchange(None, b"POST", b"/v0/topics/a", dict(headers))
    exchange.route, exchange.name, exchange.body = ROUTE, "a", body
    exchange.received, exchange.started, exchange.complete = len(body), 1.0, True
    for name, value in changes.items():
        setattr(exchange, name, value)
    return exchange


def remembered(head=HEAD, body=b"{}", headers=HEADERS, **changes):
    heads = KnownHeads()
    exchange = remembered_exchange(body, headers, **changes)
    heads.remember(exchange, head + b"\r\n\r\n" + body)
    return heads


def test_what_came_of_a_head_is_found_by_its_bytes():
    known = remembered().get(HEAD)
    assert (known.name, known.route, known.body_bytes) == ("a", ROUTE, 2)
    assert known.headers == HEADERS


@pytest.mark.parametrize("name", [b"expect", b"upgrade", b"transfer-encoding"])
def test_requests_the_parser_has_to_see(name):
    assert remembered(headers={**HEADERS, name: b"x"}).get(HEAD) is None


@pytest.mark.parametrize("changes", [{"route": None}, {"started": 0.0}, {"plain": False}, {"received": 0}])
def test_requests_that_were_not_let_in_or_end_the_connection(changes):
    assert remembered(**changes).get(HEAD) is None


KEYED = HEAD.replace(b"\r\nX", b"\r\nIdempotency-Key: first\r\nX")


def test_an_idempotency_key_is_no_part_of_what_is_remembered():
    heads = remembered(KEYED, headers={**HEADERS, b"idempotency-key": b"first"})
    for key, name, before in [
        (b"first", b"Idempotency-Key", b"X"),
        (b"second: 2, 'b'", b"idempotency-key", b"X"),
        (b"3", b"Idempotency-Key", b"Content-Length"),
    ]:
        known, found = heads.find_keyed(
            HEAD.replace(b"\r\n" + before, b"\r\n" + name + b": " + key + b"\r\n" + before)
        )
        assert (known.name, known.headers, found) == ("a", HEADERS, key)
    last = heads.find_keyed(HEAD + b"\r\nIdempotency-Key: last")
    assert (last[0].name, last[1]) == ("a", b"last")
    assert heads.find_keyed(KEYED.replace(b"/a", b"/b"))[0] is None
    # The same head without a key is the same but for the key.
    assert heads.get(HEAD).headers == HEADERS
    assert heads.get(KEYED) is None


@pytest.mark.parametrize("key", [b"", b" first", b"first ", b"a\nb", b"a\tb", b"a\x7fb", "é".encode()])
def test_keys_that_the_parser_has_to_see(key):
    heads = remembered()
    assert heads.find_keyed(KEYED.replace(b"first", key)) == (None, b"")


@pytest.mark.parametrize(
    ("head", "value"),
    [
        (KEYED.replace(b"Idempotency-Key", b"IDEMPOTENCY-KEY"), b"first"),
        (KEYED.replace(b"Key: ", b"Key:"), b"first"),
        (KEYED + b"\r\nIdempotency-Key: second", b"first, second"),
        (KEYED + b"\r\nidempotency-KEY: second", b"first, second"),
    ],
)
def test_a_key_that_is_not_as_usual_is_not_left_out(head, value):
    heads = remembered(head, headers={**HEADERS, b"idempotency-key": value})
    assert heads.get(head) is None
    assert heads.get(HEAD) is None
    assert remembered().find_keyed(head)[0] is None


def test_long_heads_are_not_kept():
    long = HEAD + b"\r\nY: " + b"y" * 1024
    assert remembered(head=long).get(long) is None


def test_the_number_of_heads_is_bounded():
    heads = remembered()
    exchange = Exchange(None, b"POST", b"/v0/topics/a", dict(HEADERS))
    exchange.route, exchange.received, exchange.started = ROUTE, 2, 1.0
    for number in range(4200):
        heads.remember(exchange, b"H: %d\r\n\r\n{}" % number)
    assert heads.get(HEAD) is None
    assert heads.get(b"H: 4199") is not None
    assert heads.get(b"H: 0") is None


def test_a_known_head_cut_before_its_end(serve):
    """Without its end it is not yet a head, whatever the lengths happen to be."""
    route = Route(
        method="POST", template="/v0/topics/:topic", handler=lambda e: e.reply(e.body), body=Body.REQUIRED
    )
    wire = serve([route]).connect()
    head = b"POST /v0/topics/a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d"
    size = len(head % 10) - 2
    whole = head % size + b"\r\n\r\n" + b"x" * size
    for _ in range(3):
        wire.send(whole)
        assert wire.read().body == b"x" * size
    cut = len(head % size) + 1
    wire.send(whole[:cut])
    time.sleep(0.05)
    wire.send(whole[cut:])
    assert wire.read().body == b"x" * size
    wire.close()


@pytest.mark.parametrize("keys", ["", "k,other:r"])
def test_a_long_conversation(serve, keys):
    """Alike and not alike, whole and in pieces, allowed and refused: always the right answer."""

    def echo(exchange):
        named = exchange.headers.get(b"idempotency-key", b"")
        exchange.reply(exchange.name.encode() + b"=" + named + b"=" + exchange.body)

    route = Route(method="POST", template="/v0/topics/:topic", handler=echo, scopes=2, body=Body.REQUIRED)
    running = serve([route], keys=keys, max_body_bytes=50)
    steps = st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 50),
            st.sampled_from(["k", "k", "k", "other"]),
            st.integers(0, 150),
            st.sampled_from(["", "", "1", "22", "a b"]),
        ),
        min_size=1,
        max_size=12,
    )

    @settings(max_examples=60, deadline=None)
    @given(steps)
    def talk(steps):
        wire = running.connect()
        for name, size, key, cut, named in steps:
            body = b"x" * size
            line = f"Idempotency-Key: {named}\r\n" if named else ""
            data = (
                f"POST /v0/topics/{name} HTTP/1.1\r\nHost: x\r\n{line}Authorization: Bearer {key}\r\n"
                f"Connection: keep-alive\r\nContent-Length: {size}\r\nContent-Type: application/json\r\n\r\n"
            ).encode() + body
            wire.send(data[:cut])
            wire.send(data[cut:])
            answer = wire.read()
            if keys and key == "other":
                assert answer.status == 403
            else:
                assert answer.body == f"{name}={named}=".encode() + body
        wire.close()

    talk()
