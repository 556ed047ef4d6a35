"""Every case through a proxy that shares one connection to the server among all clients.

Proxy and server have to agree where each request ends: what the proxy has handed on is what the server has
answered, and the next clients get the answers to their own questions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from tests.smuggling.cases import ACCEPTED, REFUSED, Case
from tests.smuggling.nginx import PROGRAM, Nginx
from tests.smuggling.speaking import conversation
from tests.support import ServerProcess, Wire, eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs nginx")

# Longer than that of the proxy, which is to be the one that hangs up.
PATIENCE_S = 3.0
LAST = b"GET /v0/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_numbers = itertools.count()


class Answered:
    """What the server has answered, by its own account."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._known = len(self.statuses())

    def statuses(self) -> list[str]:
        lines = (json.loads(line) for line in self._server.log().splitlines())
        return [str(line["status"]) for line in lines if line["logger"] == "topics.access"]

    def since(self) -> list[str]:
        return self.statuses()[self._known :]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server")
    process = ServerProcess(directory, TOPICS_ACCESS_LOG="1", TOPICS_LOG_FORMAT="json").start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def nginx(server: ServerProcess) -> Iterator[Nginx]:
    nginx = Nginx(server.address)
    yield nginx
    nginx.stop()


def ask(address: tuple[str, int]) -> None:
    """A client that has nothing to do with it asks for a topic that is not there, and is told of that one."""
    name = f"innocent-{next(_numbers)}"
    wire = Wire(address)
    try:
        assert wire.request("GET", f"/v0/topics/{name}").refused(404, "topic_not_found") == {"topic": name}
    finally:
        wire.close()


@pytest.mark.parametrize("case", [*REFUSED, *ACCEPTED], ids=lambda case: case.name)
def test_both_see_the_same_requests(server: ServerProcess, nginx: Nginx, case: Case) -> None:
    for address in nginx.addresses.values():
        answered, forwarded = Answered(server), len(nginx.forwarded())
        conversation(address, case.data + LAST, "at once", PATIENCE_S)
        ask(address)
        ask(address)

        def agree(answered: Answered = answered, forwarded: int = forwarded) -> bool:
            return sorted(nginx.forwarded()[forwarded:]) == sorted(answered.since())

        eventually(agree, 5, lambda: f"{nginx.forwarded()[forwarded:]} {answered.since()}")  # noqa: B023


def test_a_client_behind_it_is_served(server: ServerProcess, nginx: Nginx) -> None:
    """Also with bodies that come in chunks, and are handed on in chunks."""
    for at, address in enumerate(nginx.addresses.values()):
        wire = Wire(address)
        head = b"POST /v0/topics/behind-%d HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % at
        for number in range(3):
            body = b'{"records":[{"data":%d}]}' % number
            framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            wire.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + framed)
            assert wire.read().ok(201 if not number else 200)["last_seq"] == number + 1
        wire.close()
        assert server.get(f"/v0/topics/behind-{at}")["head_seq"] == 3
