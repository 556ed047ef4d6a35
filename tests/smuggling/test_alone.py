"""Every case against a server that clients reach without a proxy."""

from __future__ import annotations

import pytest

from tests.smuggling.cases import ACCEPTED, REFUSED, SMUGGLED_TOPIC, Case
from tests.smuggling.speaking import WAYS, conversation, statuses
from tests.support import ServerProcess

PATIENCE_S = 20.0
LAST = b"GET /v0/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_it_is_refused_and_the_connection_ends(server: ServerProcess, case: Case) -> None:
    for way in WAYS:
        heard = conversation(server.host_and_port, case.data, way, PATIENCE_S)
        assert statuses(heard) == [400], (way, heard)
        head, _, body = heard.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert b'"invalid_request"' in body
    assert server.request("GET", f"/v0/topics/{SMUGGLED_TOPIC}").status == 404


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_it_is_answered(server: ServerProcess, case: Case) -> None:
    """And the connection goes on, unless the client wished otherwise."""
    is_last = b"HTTP/1.0" in case.data
    for way in WAYS:
        data = case.data if is_last else case.data + LAST
        heard = conversation(server.host_and_port, data, way, PATIENCE_S)
        assert statuses(heard) == [*case.statuses, *([] if is_last else [200])], (way, heard)


# What comes before, each with an end of its own kind.
FIRST = {
    "a length": ACCEPTED[0].data,
    "chunks": next(case.data for case in ACCEPTED if case.name == "chunks with trailers"),
    "no body": b"GET /v0/topics/t HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_came_before_is_answered(server: ServerProcess, case: Case, first: str) -> None:
    """And nothing is looked at less closely because it is sent ahead."""
    for way in WAYS:
        heard = conversation(server.host_and_port, FIRST[first] + case.data, way, PATIENCE_S)
        assert statuses(heard) == [404, 400], (way, heard)
    assert server.request("GET", f"/v0/topics/{SMUGGLED_TOPIC}").status == 404


@pytest.mark.parametrize("first", FIRST)
def test_what_is_sound_is_answered_behind_another(server: ServerProcess, first: str) -> None:
    for case in ACCEPTED:
        is_last = b"HTTP/1.0" in case.data
        data = FIRST[first] + case.data + (b"" if is_last else LAST)
        for way in WAYS:
            heard = conversation(server.host_and_port, data, way, PATIENCE_S)
            assert statuses(heard) == [404, *case.statuses, *([] if is_last else [200])], (way, case.name)


def test_a_head_that_is_known_is_the_same_head_again(server: ServerProcess) -> None:
    """A head that was refused is not remembered as one that was let in, nor the other way round."""
    write = (
        b"POST /v0/topics/known HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: 25\r\n\r\n"
    )
    body = b'{"records":[{"data": 1}]}'
    sound, unsound = write % b"Host: x\r\n" + body, write % b"Host: x\r\nHost: x\r\n" + body
    for _ in range(2):
        heard = conversation(server.host_and_port, sound * 4 + unsound + sound, "at once", PATIENCE_S)
        assert [status // 100 for status in statuses(heard)] == [2, 2, 2, 2, 4]
    assert server.get("/v0/topics/known")["head_seq"] == 8
