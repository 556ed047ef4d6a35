import pytest

from topics.http.admission.auth import ADMIN, READ, WRITE, KeyRing
from topics.http.routing import Body, Route

KEYS = "all,reader:r,boats::boat.,both:rw"
PLACES = {key.name: place for place, key in enumerate(KeyRing.parse(KEYS).keys, start=1)}


def answer(exchange):
    exchange.reply(b'{"key":%d}' % (PLACES.get(exchange.key.name, 9) if exchange.key else 0))


def routes():
    return [
        Route(method="POST", template="/v0/topics/:topic", handler=answer, scopes=WRITE, body=Body.REQUIRED),
        Route(method="PUT", template="/v0/topics/:topic", handler=answer, scopes=ADMIN, body=Body.OPTIONAL),
        Route(method="GET", template="/v0/topics", handler=answer, scopes=READ),
        Route(
            method="GET",
            template="/v0/topics/:q/work",
            handler=answer,
            scopes=READ | WRITE,
            event_stream=True,
            token_in_query=True,
        ),
        Route(
            method="GET",
            template="/v0/watch/:wid",
            handler=answer,
            event_stream=True,
            token_in_query=True,
            auth_in_handler=True,
        ),
        Route(method="GET", template="/v0/ws", handler=answer, websocket=True),
        Route(
            method="GET", template="/v0/topics/:topic/segments", handler=answer, scopes=READ, all_names=True
        ),
        Route(method="GET", template="/v0/health", handler=answer, public=True),
    ]


def bearer(secret, **more):
    return {"Authorization": f"Bearer {secret}", **more}


@pytest.fixture
def wire(serve):
    return serve(routes(), keys=KEYS, max_body_bytes=100).connect()


@pytest.mark.parametrize("target", ["/v0/topics", "/nowhere", "/v0/topics/a", "/v0/ws"])
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), {"Authorization": "Basic all"}])
def test_without_a_valid_key_everything_is_401(wire, target, headers):
    reply = wire.request("GET", target, headers=headers)
    assert (reply.status, reply.code) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_public_routes_need_no_key(wire):
    assert wire.request("GET", "/v0/health").status == 200
    assert wire.request("GET", "/v0/health", headers=bearer("wrong")).status == 200


def test_scope_then_name_then_route(wire):
    assert wire.request("POST", "/v0/topics/a", b"{}", bearer("reader")).status == 403
    assert wire.request("GET", "/v0/topics/a/work", headers=bearer("reader")).status == 403
    assert wire.request("POST", "/v0/topics/a", b"{}", bearer("boats")).status == 403
    assert wire.request("POST", "/v0/topics/boat%2E1", b"{}", bearer("boats")).status == 200
    assert wire.request("PATCH", "/v0/topics/a", headers=bearer("boats")).status == 403
    reply = wire.request("PATCH", "/v0/topics/boat.1", headers=bearer("boats"))
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", "POST, PUT")
    assert wire.request("GET", "/v0/nothing", headers=bearer("boats")).code == "not_found"


def test_routes_for_unrestricted_keys_only(wire):
    assert wire.request("GET", "/v0/topics/boat.1/segments", headers=bearer("boats")).status == 403
    assert wire.request("GET", "/v0/topics/boat.1/segments", headers=bearer("reader")).status == 200


def test_forbidden_comes_before_size_and_type(wire):
    big = bytes(101)
    assert wire.request("POST", "/v0/topics/a", big, bearer("reader")).status == 403
    assert wire.request("POST", "/v0/topics/a/b/c", big, bearer("all")).status == 404
    reply = wire.request("POST", "/v0/topics/a", big, bearer("all", **{"Content-Type": "text/plain"}))
    assert (reply.status, reply.code) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "accept", [None, "", "text/event-stream", "text/html, */*;q=0.1", "TEXT/Event-Stream"]
)
def test_streams_accepted(wire, accept):
    headers = bearer("all") if accept is None else bearer("all", Accept=accept)
    assert wire.request("GET", "/v0/topics/a/work", headers=headers).status == 200


def test_streams_excluded_by_accept(wire):
    reply = wire.request("GET", "/v0/topics/a/work", headers=bearer("all", Accept="application/json"))
    assert (reply.status, reply.code) == (406, "not_acceptable")


def test_token_in_the_query_only_where_it_counts(wire):
    assert wire.request("GET", "/v0/topics/a/work?token=both&token=wrong").json == {"key": 4}
    assert wire.request("GET", "/v0/topics/a/work?token=b%6fth").status == 200
    assert wire.request("GET", "/v0/topics/a/work?token=").status == 401
    assert wire.request("GET", "/v0/topics/a/work?token=both", headers=bearer("wrong")).status == 401
    assert wire.request("GET", "/v0/topics?token=all").status == 401
    assert wire.request("GET", "/v0/ws?token=all").status == 401


def test_a_handler_may_judge_the_key_itself(wire):
    assert wire.request("GET", "/v0/watch/x").json == {"key": 0}
    assert wire.request("GET", "/v0/watch/x", headers=bearer("wrong")).json == {"key": 0}
    assert wire.request("GET", "/v0/watch/x?token=reader").json == {"key": 2}
    assert wire.request("GET", "/v0/watch/x", headers=bearer("boats", Accept="text/html")).json == {"key": 3}


def test_open_mode_ignores_the_header(serve):
    wire = serve(routes()).connect()
    assert wire.request("POST", "/v0/topics/a", b"{}", bearer("anything")).json == {"key": 0}


def test_places_in_flight(serve, wait_until):
    parked = []

    def park(exchange):
        exchange.on_close(lambda: None)
        parked.append(exchange)

    hold = Route(method="POST", template="/hold", handler=park, body=Body.OPTIONAL)
    stream = Route(method="GET", template="/stream", handler=answer, event_stream=True)
    deny = Route(method="GET", template="/admin", handler=answer, scopes=ADMIN)
    running = serve([hold, stream, deny], keys="a:r,b", max_inflight_per_key=2)
    wires = [running.connect() for _ in range(3)]
    for wire in wires[:2]:
        wire.send(b"POST /hold HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n\r\n")
    wait_until(lambda: len(parked) == 2)
    for target in ("/hold", "/nowhere", "/admin"):
        reply = wires[2].request("GET", target, headers=bearer("a"))
        assert (reply.status, reply.code) == (429, "throttled")
        assert reply.json["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 2}
        assert reply.headers["retry-after"] == "1"
    assert wires[2].request("GET", "/stream", headers=bearer("a")).status == 200
    assert wires[2].request("GET", "/hold", headers=bearer("b")).status == 405
    # A place comes back with the answer, and when the client vanishes.
    running.loop.call_soon_threadsafe(parked[0].reply, b"{}")
    assert wires[0].read().status == 200
    assert running.inflight() == 1
    wires[1].close()
    wait_until(lambda: running.inflight() == 0)
    assert parked[1].closed
    for _ in range(5):
        assert wires[2].request("GET", "/admin", headers=bearer("a")).status == 403
    assert running.inflight() == 0


def test_a_client_that_vanishes_inside_its_body_gives_its_place_back(serve, wait_until):
    running = serve(routes(), keys="all", max_inflight_per_key=1)
    wire = running.connect()
    wire.send(
        b"POST /v0/topics/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\n"
        b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\nhalf"
    )
    wait_until(lambda: running.inflight() == 1)
    assert running.request("GET", "/v0/topics", headers=bearer("all")).status == 429
    wire.close()
    wait_until(lambda: running.inflight() == 0)
    assert running.request("GET", "/v0/topics", headers=bearer("all")).status == 200


def test_no_limit_when_it_is_zero(serve):
    running = serve(routes(), keys="all", max_inflight_per_key=0)
    assert running.request("GET", "/v0/topics", headers=bearer("all")).status == 200
