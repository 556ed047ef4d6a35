import pytest

from topics.core.settings import Settings
from topics.http.admission.auth import ADMIN, READ, WRITE, KeyRing
from topics.http.routing import Body, Route

KEYS = "all,reader:r,boats::boat.,both:rw"
PLACES = {key.name: place for place, key in enumerate(KeyRing.of(Settings(api_keys=KEYS)).keys, start=1)}


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
