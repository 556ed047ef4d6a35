"""Every kind of route over HTTP/2, as over HTTP/1.1: with prior knowledge on the plain port, and by ALPN."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server
from tests.contract.test_tls import SecureServer, make_certificate
from tests.support import eventually

PATIENCE_S = 60.0


def client_of(server: Server, **options: Any) -> httpx.Client:
    """Only HTTP/2, and from the first byte."""
    base = f"http://{server.address}"
    return httpx.Client(http1=False, http2=True, base_url=base, timeout=PATIENCE_S, **options)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory = tmp_path_factory.mktemp("secure")
    cert, key = make_certificate(directory, "h2")
    environment = {"TOPICS_TLS_CERT": str(cert), "TOPICS_TLS_KEY": str(key)}
    server = SecureServer(directory / "data", environment).start()
    yield server
    server.kill()


@pytest.fixture(params=["prior knowledge", "ALPN"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[httpx.Client]:
    if request.param == "ALPN":
        secure: SecureServer = request.getfixturevalue("secure")
        context = ssl.create_default_context(cafile=secure.environment["TOPICS_TLS_CERT"])
        made = httpx.Client(
            http2=True, base_url=f"https://{secure.address}", verify=context, timeout=PATIENCE_S
        )
    else:
        made = client_of(server)
    with made:
        answer = made.get("/v0/health")
        assert answer.http_version == "HTTP/2"
        yield made


def test_topics_records_and_deletes(client: httpx.Client) -> None:
    topic = "/v0/topics/of-h2"
    client.delete(topic)
    assert client.put(topic, json={"cap_records": 4}).status_code == 201
    written = client.post(topic, json={"records": [{"data": n, "tag": f"t{n}"} for n in range(6)]})
    assert (written.status_code, written.json()["last_seq"]) == (200, 6)
    page = client.post(f"{topic}/diff", json={}).json()
    assert [record["$seq"] for record in page["records"]] == [3, 4, 5, 6]
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    assert client.get(f"{topic}/records/1").status_code == 410
    assert client.get(f"{topic}/records?last=1").json()["records"][0]["$seq"] == 6
    assert client.post(f"{topic}/delete", json={"match": "t5"}).json()["deleted"] == 1
    assert client.put(f"{topic}/cursors/c", json={"seq": 4}).status_code in (200, 201)
    assert client.get("/v0/topics?prefix=of-h2").json()["topics"][0]["topic"] == "of-h2"
    assert client.delete(topic).json()["deleted"] is True


def test_a_queue(client: httpx.Client) -> None:
    queue = "/v0/topics/of-h2-jobs"
    client.delete(queue)
    client.put(queue, json={"type": "queue"})
    client.post(queue, json={"records": [{"data": 1}]})
    (job,) = client.post(f"{queue}/claim", json={"node": "w"}).json()["claimed"]
    acked = client.post(f"{queue}/ack", json={"node": "w", "seqs": [job["$seq"]]})
    assert acked.json()["acked"] == 1


def test_streams_and_a_long_poll_beside_them(client: httpx.Client) -> None:
    client.delete("/v0/topics/live")
    client.post("/v0/topics/live", json={"records": [{"data": 0}]})
    url = client.post("/v0/watch", json={"topics": {"live": {"from_seq": 0}}}).json()["stream_url"]
    with client.stream("GET", url) as watch, client.stream("GET", "/v0/tail?topic=live@0") as tail:
        readers = [stream.iter_lines() for stream in (watch, tail)]
        for lines in readers:
            _until(lines, "caught-up")
        # On the same connection, while both are open.
        for n in range(1, 4):
            assert client.post("/v0/topics/live", json={"records": [{"data": n}]}).json()["last_seq"] == n + 1
            for lines in readers:
                assert f'"data":{n}' in _until(lines, "record")
        page = client.post("/v0/topics/live/diff", json={"from_seq": 4, "wait_ms": 1}).json()
        assert page["records"] == []


def _until(lines: Iterator[str], event: str) -> str:
    """The data of the next frame of that kind."""
    for line in lines:
        if line == f"event: {event}":
            return next(lines)
    raise AssertionError(event)


def test_large_bodies_both_ways(client: httpx.Client) -> None:
    client.delete("/v0/topics/large")
    for _ in range(3):
        records = [{"data": "x" * 900_000}, {"data": "y" * 900_000}]
        assert client.post("/v0/topics/large", json={"records": records}).status_code in (200, 201)
    whole = {"from_seq": 0, "max_batch_bytes": 8 * 1024 * 1024}
    for encoding in ("identity", "gzip", "zstd"):
        page = client.post("/v0/topics/large/diff", json=whole, headers={"accept-encoding": encoding})
        assert page.headers.get("content-encoding", "identity") == encoding
        assert [len(record["data"]) for record in page.json()["records"]] == [900_000] * 6
    bulk = client.post("/v0/topics/large/scan", json={})
    assert bulk.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert len(bulk.content) > 6 * 900_000


def test_heads_and_errors_are_those_of_http1(client: httpx.Client, server: Server) -> None:
    secure = str(client.base_url).startswith("https")
    for method, path, body in (
        ("GET", "/v0/topics/none", None),
        ("PATCH", "/v0/topics/none", None),
        ("GET", "/nowhere", None),
        ("POST", "/v0/topics/none/diff", b"{"),
        ("POST", "/v0/topics/none/diff", b'{"bogus": 1}'),
        ("HEAD", "/v0/topics/none", None),
        ("GET", "/v0/topics?bogus=1", None),
        ("GET", "/v0/tail", None),
        ("GET", "/console.css", None),
        ("GET", "/v0/ws", None),
    ):
        headers = {"x-request-id": "an-id", "content-type": "application/json"}
        answer = client.request(method, path, content=body, headers=headers | {"accept-encoding": "identity"})
        same = server.fresh_request(method, path, body, headers)
        assert (answer.status_code, answer.content) == (same.status, same.body), (method, path)
        told = {name: value for name, value in answer.headers.items() if name != "date"}
        expected = {name.lower(): value for name, value in same.headers.items()}
        assert told == {name: value for name, value in expected.items() if name not in ("date", "connection")}
    assert secure or client.post("/v0/topics/t/diff", content=b"x").status_code == 415


def test_keys_limits_pages_and_hosts(boot: Boot) -> None:
    server = boot(
        TOPICS_API_KEYS="secret,reader:read",
        TOPICS_CORS_ORIGINS="https://shop.example",
        TOPICS_MAX_INFLIGHT_PER_KEY="2",
    )
    with client_of(server) as client:
        missing = client.get("/v0/topics")
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
        reader = {"authorization": "Bearer reader"}
        assert client.put("/v0/topics/t", json={}, headers=reader).status_code == 403
        page = {"origin": "https://shop.example"}
        asked = page | {"access-control-request-method": "PUT", "access-control-request-headers": "x"}
        preflight = client.options("/v0/topics/t", headers=asked)
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["access-control-allow-origin"] == "https://shop.example"
        other = client.put("/v0/topics/t", json={}, headers={"origin": "https://evil.example"})
        assert other.status_code == 403
    with httpx.Client(http1=False, http2=True, base_url=f"http://{server.address}") as client:
        key = {"authorization": "Bearer secret"}
        client.put("/v0/topics/t", json={}, headers=key)
        metrics = client.get("/v0/metrics", headers=key).text
        assert re.search(r'topics_http_requests?_\w+\{[^}]*route="/v0/topics/:topic"', metrics)


def test_a_server_without_keys_asks_for_its_own_name(boot: Boot) -> None:
    server = boot(TOPICS_ALLOWED_HOSTS="")
    with client_of(server) as client:
        assert client.get("/v0/health").status_code == 200
        answer = client.get("/v0/health", headers={"host": "evil.example"})
        assert (answer.status_code, answer.json()["error"]["detail"]) == (403, {"host": "evil.example"})


def test_requests_are_logged_and_streams_end_with_a_word_when_the_server_stops(boot: Boot) -> None:
    server = boot(TOPICS_ACCESS_LOG="1", TOPICS_LOG_FORMAT="json")
    with client_of(server) as client:
        client.post("/v0/topics/t", json={"records": [{"data": 1}]}, headers={"x-request-id": "first"})
        with client.stream("GET", "/v0/tail?topic=t@0") as tail:
            lines = tail.iter_lines()
            _until(lines, "caught-up")
            server.signal(15)
            last = json.loads(_until(lines, "closing").removeprefix("data: "))
            assert last["code"] == "server_shutting_down"
    eventually(lambda: '"request_id": "first"' in server.log() or '"request_id":"first"' in server.log())


def test_curl_speaks_it_too(server: Server) -> None:
    curl = shutil.which("curl")
    assert curl is not None
    url = f"http://{server.address}/v0/topics/of-curl"
    write = ["-H", "content-type: application/json", "-d", '{"records": [{"data": "x"}]}']
    shown = ["-s", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"]
    for arguments in (["--http2-prior-knowledge"], ["--http1.1"]):
        done = subprocess.run(
            [curl, *arguments, *shown, *write, url], capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[1] in ("200", "201")
    assert done.stdout.startswith("1.1")


def test_http1_goes_on_beside_it(secure: SecureServer, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=secure.environment["TOPICS_TLS_CERT"])
    with httpx.Client(base_url=f"https://{secure.address}", verify=context) as plain:
        assert plain.get("/v0/health").http_version == "HTTP/1.1"
