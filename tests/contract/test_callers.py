"""Which hosts are answered, and which pages may talk to the server: nothing is done for others."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server
from tests.contract.test_boot import refuses_to_start
from tests.support import Answer, ServerProcess

EVIL = "https://evil.example"
SHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
}


def status(server: Server, method: str, path: str, body: Any = None, **headers: str) -> int:
    """Also of a stream or a socket that would stay open."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    if "Host" not in sent:
        lines.append(f"Host: {server.address}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    with server.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")) as wire:
        return wire.read_head()[0]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("plain") / "data", {"TOPICS_ALLOWED_HOSTS": ""}).start()
    yield server
    server.kill()


def own(server: ServerProcess) -> str:
    return f"http://{server.address}"


def test_hosts_of_a_server_without_keys(boot: Boot) -> None:
    server = boot(TOPICS_ALLOWED_HOSTS="topics.example, Other.Example.")
    port = server.host_and_port[1]
    for host in (
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        f"127.0.0.1:{port}",
        "127.8.8.8",
        "[::1]:5",
        "a.localhost",
    ):
        assert status(server, "GET", "/v0/topics", Host=host) == 200, host
    for host in ("topics.example", "TOPICS.example:443", "other.example", "topics.example."):
        assert status(server, "GET", "/v0/topics", Host=host) == 200, host
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "10.0.0.1",
        "x",
        "[::2]",
        "0.0.0.0",
    ):
        for path in ("/v0/topics", "/v0/health", "/", "/v0/nowhere"):
            assert status(server, "GET", path, Host=host) == 403, (host, path)
    with server.raw(b"GET /v0/topics HTTP/1.1\r\nHost: evil.example\r\n\r\n") as wire:
        assert wire.read().refused(403, "forbidden")["host"] == "evil.example"


def test_a_star_is_every_host(boot: Boot) -> None:
    server = boot(TOPICS_ALLOWED_HOSTS="*")
    assert status(server, "GET", "/v0/topics", Host="any.example") == 200
    # But not every page: that would be all of the web.
    assert status(server, "PUT", "/v0/topics/t", Host="any.example", Origin=EVIL) == 403


def test_with_keys_every_host_is_fine(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="k", TOPICS_ALLOWED_HOSTS="")
    assert status(server, "GET", "/v0/topics", Host="any.example", Authorization="Bearer k") == 200
    assert status(server, "GET", "/v0/topics", Host="any.example") == 401
    # A page is judged before its key is.
    assert status(server, "PUT", "/v0/topics/t", Host="any.example", Origin=EVIL) == 403


def test_an_exposed_server_without_keys_holds_browsers_to_it(boot: Boot) -> None:
    server = boot(TOPICS_HOST="0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1", TOPICS_ALLOWED_HOSTS="")
    assert status(server, "GET", "/v0/topics", Host="topics") == 200
    for header in (
        {"Origin": "http://topics"},
        {"Sec-Fetch-Site": "none"},
        {"User-Agent": "Mozilla/5.0 (X)"},
    ):
        assert status(server, "GET", "/v0/topics", Host="topics", **header) == 403, header
        assert status(server, "GET", "/v0/topics", Host="localhost", **header) == 200, header


def test_pages_from_elsewhere_change_and_stream_nothing(plain: Server) -> None:
    plain.topic("t").fill(2)
    plain.topic("q", type="queue").fill(2)
    record, seqs = b'{"records":[{"data":1}]}', b'{"node":"w","seqs":[1]}'
    for origin in (EVIL, "null", "http://127.0.0.1:1", own(plain) + "0", f"https://{plain.address}", "x", ""):
        for method, path, body in (
            ("POST", "/v0/topics/t", record),
            ("PUT", "/v0/topics/u", None),
            ("DELETE", "/v0/topics/t", None),
            ("POST", "/v0/topics/t/delete", b'{"before_seq":9}'),
            ("POST", "/v0/topics/t/diff", b"{}"),
            ("POST", "/v0/topics/q/claim", b'{"node":"w"}'),
            ("POST", "/v0/topics/q/ack", seqs),
            ("POST", "/v0/admin/purge", b"{}"),
            ("POST", "/v0/tickets", b'{"path":"/v0/tail?topic=t"}'),
            ("GET", "/v0/tail?topic=t", None),
            ("GET", "/v0/topics/q/work?node=w", None),
            ("OPTIONS", "/v0/topics/t", None),
        ):
            assert status(plain, method, path, body, Origin=origin) == 403, (origin, method, path)
        assert status(plain, "GET", "/v0/ws", Origin=origin, **SHAKE) == 403, origin
    assert plain.send("GET", "/v0/topics/t").ok()["head_seq"] == 2
    assert plain.send("GET", "/v0/topics/u").status == 404
    answer = plain.send("GET", "/v0/topics/t", Origin=EVIL)
    # It may ask, and is not shown the answer.
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, False)


def test_its_own_pages(plain: Server) -> None:
    origin = own(plain)
    assert status(plain, "PUT", "/v0/topics/own", Origin=origin) == 201
    assert status(plain, "GET", "/v0/tail?topic=t", Origin=origin) == 200
    assert status(plain, "GET", "/v0/ws", Origin=origin, **SHAKE) == 101
    local = {"Host": "localhost", "Origin": "http://localhost"}
    assert status(plain, "PUT", "/v0/topics/own", **local) == 200
    assert status(plain, "PUT", "/v0/topics/own", Host="localhost", Origin="http://localhost:80") == 200
    # A proxy on this machine may end the TLS of its pages.
    secure = {"Host": "localhost", "Origin": "https://localhost"}
    assert status(plain, "PUT", "/v0/topics/own", **secure) == 403
    assert status(plain, "PUT", "/v0/topics/own", **secure, **{"X-Forwarded-Proto": "https"}) == 200


def test_allowed_hosts_count_as_its_own(boot: Boot) -> None:
    server = boot(TOPICS_ALLOWED_HOSTS="topics.example")
    proxied = {"Origin": "https://topics.example", "X-Forwarded-Proto": "https"}
    assert status(server, "PUT", "/v0/topics/t", **proxied) == 201
    assert status(server, "PUT", "/v0/topics/t", Origin="https://topics.example") == 403
    assert status(server, "PUT", "/v0/topics/t", Origin="http://topics.example") == 200


def test_an_allowed_host_with_a_port_counts_with_that_port_alone(boot: Boot) -> None:
    server = boot(
        TOPICS_ALLOWED_HOSTS="topics.example:9000,[2001:db8::1]:90,2001:db8::2,web.example:80,[::2]:80"
    )
    hosts = ("topics.example:9000", "Topics.Example.:9000", "[2001:db8::1]:90", "[2001:db8::2]:7")
    # The usual port may be left out.
    for host in (*hosts, "web.example", "web.example:80", "[::2]", "[::2]:80"):
        assert status(server, "GET", "/v0/topics", Host=host) == 200, host
    for host in ("topics.example", "topics.example:9001", "[2001:db8::1]", "web.example:443", "[::2]:81"):
        assert status(server, "GET", "/v0/topics", Host=host) == 403, host
    assert status(server, "PUT", "/v0/topics/t", Origin="http://topics.example:9000") == 201
    assert status(server, "PUT", "/v0/topics/t", Origin="http://topics.example") == 403


def asked(server: Server, method: str, path: str, **headers: str) -> Answer:
    return server.fresh_request(method, path, None, {k.replace("_", "-"): v for k, v in headers.items()})


def test_pages_that_are_let_in(boot: Boot) -> None:
    page = "https://shop.example"
    server = boot(TOPICS_CORS_ORIGINS=f"{page}, http://dev.example:3000", TOPICS_API_KEYS="k")
    wanted = "authorization,content-type,x-own"
    preflight = asked(
        server,
        "OPTIONS",
        "/v0/topics/t",
        Origin=page,
        Access_Control_Request_Method="PUT",
        Access_Control_Request_Headers=wanted,
    )
    assert (preflight.status, preflight.body) == (204, b"")
    assert preflight.headers["access-control-allow-origin"] == page
    assert preflight.headers["access-control-allow-headers"] == wanted
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in preflight.headers
    assert "content-length" not in preflight.headers
    key = {"Authorization": "Bearer k"}
    for origin in (page, "http://dev.example:3000"):
        for method, path, code in (
            ("PUT", "/v0/topics/t", (200, 201)),
            ("GET", "/v0/topics/t", (200,)),
            ("GET", "/v0/topics/none", (404,)),
        ):
            answer = asked(server, method, path, Origin=origin, **key)
            assert answer.status in code
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "Origin"
        assert (
            asked(server, "GET", "/v0/topics", Origin=origin).headers["access-control-allow-origin"] == origin
        )
    for origin in ("https://shop.example:444", "http://shop.example", "https://a.shop.example"):
        refused = asked(server, "OPTIONS", "/v0/topics/t", Origin=origin, Access_Control_Request_Method="PUT")
        assert refused.refused(403, "forbidden")["origin"] == origin
        assert "access-control-allow-origin" not in refused.headers


def test_streams_for_pages_that_are_let_in(boot: Boot) -> None:
    server = boot(TOPICS_CORS_ORIGINS="https://shop.example")
    with server.raw(
        b"GET /v0/tail?topic=t HTTP/1.1\r\nHost: localhost\r\nOrigin: https://shop.example\r\n\r\n"
    ) as wire:
        code, headers = wire.read_head()
    assert (code, headers["access-control-allow-origin"]) == (200, "https://shop.example")


def test_a_post_of_a_page_says_what_it_is(plain: Server) -> None:
    origin = own(plain)
    assert (
        asked(plain, "POST", "/v0/admin/backup", Origin=origin).refused(415, "unsupported_media_type") is None
    )
    typed = {"Origin": origin, "Content-Type": "application/json"}
    assert asked(plain, "POST", "/v0/admin/backup", **typed).status == 200
    assert asked(plain, "POST", "/v0/admin/backup").status == 200
    assert asked(plain, "PUT", "/v0/topics/untyped", Origin=origin).status == 201
    assert asked(plain, "DELETE", "/v0/topics/untyped", Origin=origin).status == 200


def test_what_is_no_origin_stops_the_start(tmp_path: Path) -> None:
    assert "TOPICS_CORS_ORIGINS" in refuses_to_start(tmp_path, TOPICS_CORS_ORIGINS="https://a.example,shop")
