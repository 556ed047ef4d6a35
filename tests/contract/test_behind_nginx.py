"""Behind a real nginx with TLS on both sides, at a path of its site.

Clients speak HTTP/2 to it. nginx speaks HTTP/1.1 to the server, with the path or without it; where it hands
requests on as it does those of gRPC, it speaks HTTP/2 to the server as well.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage

from tests.contract.test_tls import SecureServer, make_certificate
from tests.smuggling.nginx import PROGRAM, NginxProcess

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs nginx")

BASE = "/shop/topics"
PATIENCE_S = 60.0
WAYS = ("kept", "stripped", "http2")
_CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log info;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    ssl_certificate {directory}/site.pem;
    ssl_certificate_key {directory}/site.key;
    # One each: connections that are kept are used again, whatever was spoken on them.
    upstream topics {{ server {server}; keepalive 4; }}
    upstream topics_http2 {{ server {server}; keepalive 4; }}
    proxy_ssl_trusted_certificate {directory}/server.pem;
    proxy_ssl_verify on;
    proxy_ssl_name localhost;
    grpc_ssl_trusted_certificate {directory}/server.pem;
    grpc_ssl_verify on;
    grpc_ssl_name localhost;
    grpc_set_header Host $http_host;
    grpc_set_header X-Forwarded-Proto $scheme;
    grpc_read_timeout 1h;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $http_connection;
    proxy_buffering off;
    proxy_read_timeout 1h;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{kept} ssl http2;
        location /shop/topics {{ proxy_pass https://topics; }}
    }}
    server {{
        listen 127.0.0.1:{stripped} ssl http2;
        location = /shop/topics {{ proxy_pass https://topics; }}
        location /shop/topics/ {{ proxy_pass https://topics/; }}
    }}
    server {{
        listen 127.0.0.1:{http2} ssl http2;
        location /shop/topics {{ grpc_pass grpcs://topics_http2; }}
    }}
}}
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("site", "server"):
        make_certificate(directory, name)
    return directory


@pytest.fixture(scope="module")
def server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    environment = {
        "TOPICS_TLS_CERT": str(certificates / "server.pem"),
        "TOPICS_TLS_KEY": str(certificates / "server.key"),
        "TOPICS_BASE_PATH": BASE,
        "TOPICS_API_KEYS": "secret",
        "TOPICS_ACCESS_LOG": "1",
    }
    server = SecureServer(tmp_path_factory.mktemp("server") / "data", environment).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def nginx(server: SecureServer, certificates: Path) -> Iterator[NginxProcess]:
    nginx = NginxProcess(_CONFIGURATION, WAYS, certificates.iterdir(), server=server.address)
    yield nginx
    nginx.stop()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(nginx: NginxProcess, certificates: Path, way: str) -> Iterator[httpx.Client]:
    trusted = ssl.create_default_context(cafile=str(certificates / "site.pem"))
    site = f"https://localhost:{nginx.addresses[way][1]}"
    key = {"authorization": "Bearer secret"}
    with httpx.Client(http2=True, verify=trusted, base_url=site, headers=key, timeout=PATIENCE_S) as client:
        assert client.get(f"{BASE}/healthz").http_version == "HTTP/2"
        yield client


def test_records_and_errors(client: httpx.Client, way: str) -> None:
    topic = f"{BASE}/v0/topics/{way}"
    written = client.post(topic, json={"records": [{"data": "x" * 900_000}] * 5})
    assert written.status_code == 201
    page = client.post(f"{topic}/diff", json={"max_batch_bytes": 8 * 1024 * 1024})
    assert [len(record["data"]) for record in page.json()["records"]] == [900_000] * 5
    missing = client.get(f"{BASE}/v0/topics/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "topic_not_found")
    refused = client.get(f"{BASE}/v0/topics", headers={"authorization": "Bearer wrong"})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert client.head(f"{BASE}/v0/topics").status_code == 200


def test_streams_come_as_they_are_written(client: httpx.Client, way: str) -> None:
    topic = f"{BASE}/v0/topics/live-{way}"
    client.post(topic, json={"records": [{"data": 0}]})
    watch = {"topics": {f"live-{way}": {"from_seq": 0}}}
    url = client.post(f"{BASE}/v0/watch", json=watch).json()["stream_url"]
    assert url.startswith(f"{BASE}/v0/watch/")
    ticket = client.post(f"{BASE}/v0/tickets", json={"path": url}).json()["ticket"]
    # As a page would: without the key.
    opening = client.build_request("GET", f"{url}?ticket={ticket}")
    del opening.headers["authorization"]
    opened = client.send(opening, stream=True)
    assert opened.status_code == 200
    assert any('"data":0' in line for line in opened.iter_lines())
    opened.close()
    tail = f"{BASE}/v0/tail?topic=live-{way}@0"
    with client.stream("GET", tail) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        lines = stream.iter_lines()
        for n in range(1, 4):
            # Each is here before the next one is written: nothing waits in between.
            client.post(topic, json={"records": [{"data": n}]})
            assert any(line.startswith("data:") and f'"data":{n}' in line for line in lines)


def test_the_console_and_what_it_asks_for(client: httpx.Client) -> None:
    moved = client.get(BASE)
    assert (moved.status_code, moved.headers["location"]) == (308, f"{BASE}/")
    page = client.get(f"{BASE}/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("console.js", "console.css", "console.svg"):
        assert f'"{name}"' in page.text
        assert client.get(f"{BASE}/{name}").status_code == 200
    assert client.get(f"{BASE}/v0/openapi.json").json()["servers"] == [{"url": BASE}]
    # A page of the site itself may write; one from elsewhere may not.
    body: dict[str, Any] = {"records": [{"data": 1}]}
    site = str(client.base_url).rstrip("/")
    for origin, status in ((site, 200), ("https://evil.example", 403), (site.replace("https", "http"), 403)):
        answer = client.post(f"{BASE}/v0/topics/pages", json=body, headers={"origin": origin})
        assert answer.status_code in ({200, 201} if status == 200 else {status})


@pytest.mark.parametrize("way", ["kept", "stripped"])
def test_a_websocket_passes(nginx: NginxProcess, certificates: Path, way: str) -> None:
    trusted = ssl.create_default_context(cafile=str(certificates / "site.pem"))
    trusted.set_alpn_protocols(["http/1.1"])
    with (
        socket.create_connection(nginx.addresses[way], PATIENCE_S) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        protocol = WSConnection(ConnectionType.CLIENT)
        key = [(b"Authorization", b"Bearer secret")]
        asked = Request(host="localhost", target=f"{BASE}/v0/ws", extra_headers=key)
        secure.sendall(protocol.send(asked))
        events: list[Any] = []
        while not any(isinstance(event, TextMessage) for event in events):
            protocol.receive_data(secure.recv(65536))
            for event in protocol.events():
                if isinstance(event, AcceptConnection):
                    secure.sendall(protocol.send(Message(data='{"op":"ping","request_id":7}')))
                events.append(event)
        assert '"pong"' in events[-1].data
