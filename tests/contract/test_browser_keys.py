"""Keys of pages, which cannot send headers: tickets for streams, a subprotocol for sockets."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.server import Server
from tests.contract.streams import Streams
from tests.support import Answer, raw_request

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = "boss,reader:r,shop:r:shop.,writer:w,sécret-ö"
    directory: Path = tmp_path_factory.mktemp("guarded") / "data"
    server = Server(directory, {"TOPICS_API_KEYS": keys}).start()
    server.send("PUT", "/v0/topics/shop.a", {}, Authorization="Bearer boss").ok(201)
    server.send("PUT", "/v0/topics/jobs", {"type": "queue"}, Authorization="Bearer boss").ok(201)
    yield server
    server.kill()


def ask(server: Server, path: Any, key: str = "reader") -> Answer:
    return server.send("POST", "/v0/tickets", {"path": path}, Authorization=f"Bearer {key}")


def opened(server: Server, path: str) -> int:
    """The status; a stream that is opened is closed again."""
    with server.raw(raw_request("GET", path)) as wire:
        status, _ = wire.read_head()
        return status


def test_a_ticket_opens_a_stream_once(guarded: Server, streams: Streams) -> None:
    path = "/v0/tail?topic=shop.a@0"
    body = ask(guarded, path).ok()
    assert set(body) == {"ticket", "expires_ms", "performance"}
    url = f"{path}&ticket={body['ticket']}"
    reader = streams.events(guarded, url)
    (level,) = reader.until("caught-up")
    assert opened(guarded, url) == 401
    # A page that comes back asks for another, and says how far it got.
    ticket = ask(guarded, path).ok()["ticket"]
    assert opened(guarded, f"{path}&ticket={ticket}&last_event_id={level.id}") == 200
    assert opened(guarded, path) == 401
    assert opened(guarded, f"{path}&ticket=none") == 401


def test_a_ticket_is_for_one_path_and_for_streams_only(guarded: Server) -> None:
    ticket = ask(guarded, "/v0/tail?topic=shop.a").ok()["ticket"]
    assert opened(guarded, f"/v0/tail?topic=shop.a@0&ticket={ticket}") == 401
    guarded.send("GET", f"/v0/topics/shop.a/records?ticket={ticket}").refused(401, "unauthorized")
    for wrong in ("/v0/topics", "/v0/ws", "/v0/nowhere", "v0/tail", "", "/v0/tail?topic=\n", 5, None):
        ask(guarded, wrong).refused(400, "invalid_request")
    assert opened(guarded, f"/v0/tail?topic=shop.a&ticket={ticket}") == 200


def test_a_ticket_gives_no_more_than_its_key(guarded: Server) -> None:
    tail = "/v0/tail?topic=shop.a"
    guarded.send("POST", "/v0/tickets", {"path": tail}).refused(401, "unauthorized")
    ask(guarded, tail, "writer").refused(403, "forbidden")
    work = "/v0/topics/jobs/work?node=w"
    for key in ("reader", "shop"):
        ask(guarded, work, key).refused(403, "forbidden")
    assert opened(guarded, f"{work}&ticket={ask(guarded, work, 'boss').ok()['ticket']}") == 200
    jobs = "/v0/tail?topic=jobs"
    assert opened(guarded, f"{jobs}&ticket={ask(guarded, jobs, 'shop').ok()['ticket']}") == 403


def test_a_ticket_for_a_session_is_one_of_its_key(guarded: Server) -> None:
    body = {"topics": {"shop.a": {}}}
    url = guarded.send("POST", "/v0/watch", body, Authorization="Bearer reader").ok()["stream_url"]
    assert opened(guarded, f"{url}?ticket={ask(guarded, url, 'boss').ok()['ticket']}") == 401
    assert opened(guarded, f"{url}?ticket={ask(guarded, url).ok()['ticket']}") == 200


def test_without_keys_a_ticket_is_not_needed(server: Server) -> None:
    server.topic("open")
    ticket = server.send("POST", "/v0/tickets", {"path": "/v0/tail?topic=open"}).ok()["ticket"]
    for value in (ticket, ticket, "any"):
        assert opened(server, f"/v0/tail?topic=open&ticket={value}") == 200


def shake(server: Server, *protocols: str) -> tuple[int, dict[str, str]]:
    headers = HANDSHAKE | ({"Sec-WebSocket-Protocol": ", ".join(protocols)} if protocols else {})
    with server.raw(raw_request("GET", "/v0/ws", headers=headers)) as wire:
        return wire.read_head()


def key_protocol(secret: str) -> str:
    return "topics.key." + base64.urlsafe_b64encode(secret.encode()).rstrip(b"=").decode()


def test_a_socket_takes_its_key_as_a_subprotocol(guarded: Server) -> None:
    for secret in ("reader", "sécret-ö"):
        for protocols in (("topics.v0", key_protocol(secret)), (key_protocol(secret), "topics.v0")):
            status, headers = shake(guarded, *protocols)
            assert (status, headers["sec-websocket-protocol"]) == (101, "topics.v0")
    wrong = (key_protocol("none"), "topics.key.!", "topics.key.", "topics.key.a")
    for protocols in (("topics.v0",), (), *(("topics.v0", key) for key in wrong)):
        assert shake(guarded, *protocols)[0] == 401


def test_without_keys_the_protocol_is_chosen_all_the_same(server: Server) -> None:
    assert shake(server, "topics.v0", key_protocol("any"))[1]["sec-websocket-protocol"] == "topics.v0"
    status, headers = shake(server, "other")
    assert (status, "sec-websocket-protocol" in headers) == (101, False)
