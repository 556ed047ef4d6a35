"""A browser over TLS: it speaks HTTP/2 for everything, WebSockets included."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.contract.test_tls import SecureServer, make_certificate

SECRET = "secret of the page"
# Writes, hears what was written, and says goodbye.
TALK = """([url, protocols]) => new Promise((resolve) => {
  const seen = [];
  const socket = new WebSocket(url, protocols);
  const say = (message) => socket.send(JSON.stringify(message));
  socket.onopen = () => say({ op: "publish", topic: "t", records: [{ data: "x".repeat(100000) }] });
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    seen.push(message.op);
    if (message.op === "ack") say({ op: "subscribe", topic: "t" });
    if (message.op === "caught_up") socket.close(1000);
  };
  socket.onclose = ({ code, wasClean }) => resolve({ seen, code, wasClean, protocol: socket.protocol });
})"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecureServer]:
    cert, key = make_certificate(tmp_path, "page")
    environment = {"TOPICS_TLS_CERT": str(cert), "TOPICS_TLS_KEY": str(key), "TOPICS_API_KEYS": SECRET}
    server = SecureServer(tmp_path / "data", environment).start()
    yield server
    server.kill()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(ignore_https_errors=True)
    yield context.new_page()
    context.close()


def protocols(secret: str) -> list[str]:
    return ["topics.v0", f"topics.key.{base64.urlsafe_b64encode(secret.encode()).decode().rstrip('=')}"]


def sockets_by_status(page: Page, origin: str) -> dict[str, float]:
    """How many requests for a WebSocket were answered: 1xx over HTTP/1.1, 2xx over HTTP/2."""
    told = page.request.get(f"{origin}/v0/metrics", headers={"Authorization": f"Bearer {SECRET}"}).text()
    lines = [line for line in told.splitlines() if "_seconds_count{" in line and '"/v0/ws"' in line]
    return {line.split('status="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_a_browser_opens_websockets_over_http2(server: SecureServer, page: Page) -> None:
    origin = f"https://{server.address}"
    page.goto(f"{origin}/")
    assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
    url = f"wss://{server.address}/v0/ws"
    told = page.evaluate(TALK, [url, protocols(SECRET)])
    assert told == {
        "seen": ["ack", "subscribed", "record", "caught_up"],
        "code": 1000,
        "wasClean": True,
        "protocol": "topics.v0",
    }
    for wrong in (protocols("wrong"), ["topics.v0"]):
        assert page.evaluate(TALK, [url, wrong]) == {
            "seen": [],
            "code": 1006,
            "wasClean": False,
            "protocol": "",
        }
    assert sockets_by_status(page, origin) == {"2xx": 1.0, "4xx": 2.0}


def test_a_page_from_elsewhere_opens_none(server: SecureServer, page: Page) -> None:
    # The same server by another name is another origin, and no page of it was let in.
    page.goto(f"https://localhost:{server.host_and_port[1]}/v0/health")
    told = page.evaluate(TALK, [f"wss://{server.address}/v0/ws", protocols(SECRET)])
    assert (told["seen"], told["code"]) == ([], 1006)
