"""Sockets that the accelerator reads and answers: what it takes, and what it leaves to others."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.accelerated import NATIVE
from tests.values.sockets_fuzz import Connection, Known, Named, Peer, drive
from topics.http.wire.seq_answers import after_seqs, single_answers

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the accelerator is not compiled")
HEAD = b"POST /t HTTP/1.1\r\nContent-Length: 4"
REQUEST = HEAD + b"\r\n\r\nbody"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: "


@pytest.fixture
def sockets() -> Iterator[Any]:
    made = NATIVE.Sockets(Connection, Known, Named)
    yield made
    made.close()


@pytest.fixture
def peer(sockets: Any) -> Iterator[Peer]:
    peer = Peer()
    sockets.add(peer.connection)
    yield peer
    peer.close()


def heads(**changed: Any) -> dict[bytes, Known]:
    return {HEAD: Known(**changed)}


def test_a_known_request_travels(sockets: Any, peer: Peer) -> None:
    known = heads()
    peer.client.sendall(REQUEST)
    travelling, others, ended, _ = sockets.receive(known)
    assert travelling == [("convoys", [("name", ([peer.connection], [b"body"], None))])]
    assert (others, ended) == ([], [])
    connection = peer.connection
    assert (connection._current, connection._requests, connection._unknown_heads) == (known[HEAD], 1, 0)
    assert sockets.receive(known) == ([], [], [], [])


def test_a_known_request_travels_with_its_idempotency_key(sockets: Any, peer: Peer) -> None:
    known = heads()
    peer.client.sendall(HEAD + b"\r\nIdempotency-Key: k-1\r\n\r\nbody")
    travelling, others, _, _ = sockets.receive(known)
    assert travelling == [("convoys", [("name", ([peer.connection], [b"body"], [b"k-1"]))])]
    assert (others, peer.connection._current) == ([], known[HEAD])


@pytest.mark.parametrize("key", [b"", b" k", b"k ", b"k\x7f", b"\xc3\xa4"])
def test_a_key_that_is_left_to_the_parser_does_not_travel(sockets: Any, peer: Peer, key: bytes) -> None:
    request = HEAD + b"\r\nIdempotency-Key: " + key + b"\r\n\r\nbody"
    peer.client.sendall(request)
    assert sockets.receive(heads()) == ([], [(peer.connection, request)], [], [])


def test_those_who_go_to_one_name_are_a_group(sockets: Any) -> None:
    peers, one, two = [Peer() for _ in range(8)], Known(name="one"), Known(name="two")
    for at, each in enumerate(peers):
        sockets.add(each.connection)
        key = b"\r\nidempotency-key: k" if at >= 6 else b""
        each.client.sendall(b"%d%b\r\n\r\nbody" % (at % 2, key))
    ((convoys, several),), _, _, _ = sockets.receive({b"0": one, b"1": two})
    assert convoys == "convoys"
    assert [(name, len(sent[0]), sent[1], sent[2]) for name, sent in several] == [
        ("one", 3, [b"body"] * 3, None),
        ("two", 3, [b"body"] * 3, None),
        ("one", 1, [b"body"], [b"k"]),
        ("two", 1, [b"body"], [b"k"]),
    ]
    for each in peers:
        each.close()


def test_each_of_several_convoys_gets_its_own(sockets: Any) -> None:
    peers, known = [Peer() for _ in range(2)], [Known(convoys=name) for name in ("these", "those")]
    for at, each in enumerate(peers):
        sockets.add(each.connection)
        each.client.sendall(b"%d\r\n\r\nbody" % at)
    travelling, _, _, _ = sockets.receive({b"0": known[0], b"1": known[1]})
    assert [(convoys, len(several)) for convoys, several in travelling] == [("these", 1), ("those", 1)]
    for each in peers:
        each.close()


@pytest.mark.parametrize(
    "known", [{"convoys": None}, {"key": "somebody"}, {"body_bytes": 5}, {"body_bytes": 3}]
)
def test_requests_that_have_to_be_looked_at_are_handed_over(
    sockets: Any, peer: Peer, known: dict[str, Any]
) -> None:
    peer.client.sendall(REQUEST)
    assert sockets.receive(heads(**known)) == ([], [(peer.connection, REQUEST)], [], [])
    assert peer.connection._current is None


def test_nothing_travels_without_heads(sockets: Any, peer: Peer) -> None:
    peer.client.sendall(REQUEST)
    assert sockets.receive(None) == ([], [(peer.connection, REQUEST)], [], [])


@pytest.mark.parametrize(
    "state",
    [{"mode": 1}, {"_behind": True}, {"_begun": True}, {"_current": "another"}, {"_write_paused": True}],
    ids=str,
)
def test_a_connection_that_is_not_idle_gets_its_input_itself(
    sockets: Any, peer: Peer, state: dict[str, Any]
) -> None:
    for name, value in state.items():
        setattr(peer.connection, name, value)
    peer.client.sendall(REQUEST)
    assert sockets.receive(heads()) == ([], [(peer.connection, REQUEST)], [], [])


def test_of_a_transport_that_closes_nothing_is_read(sockets: Any, peer: Peer) -> None:
    peer.transport.closing = True
    peer.client.sendall(REQUEST)
    assert sockets.receive(heads()) == ([], [], [], [])
    assert peer.server.recv(100) == REQUEST


def test_the_end_is_left_to_the_loop_behind_what_came_before(sockets: Any, peer: Peer) -> None:
    peer.client.sendall(REQUEST)
    peer.client.shutdown(socket.SHUT_WR)
    groups, others, ended, _ = sockets.receive(heads())
    assert (len(groups), others, ended) == (1, [], [peer.connection])
    sockets.remove(peer.connection)
    assert sockets.receive(heads()) == ([], [], [], [])


def test_an_error_is_left_to_the_loop_which_has_to_hear_of_it(sockets: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    peer = Peer(server, client)
    sockets.add(peer.connection)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert sockets.receive(heads()) == ([], [], [peer.connection], [])
    with pytest.raises(ConnectionResetError):
        server.recv(1)
    peer.close()


def test_more_than_is_read_at_once_is_left_to_the_loop(sockets: Any) -> None:
    server, client = socket.socketpair()
    for each in (server, client):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    peer = Peer(server, client)
    sockets.add(peer.connection)
    client.setblocking(False)
    sent = client.send(b"x" * 400_000)
    assert sent > 256_000
    groups, others, ended, _ = sockets.receive(heads())
    assert (groups, ended) == ([], [peer.connection])
    assert others == [(peer.connection, b"x" * 256_000)]
    peer.close()


def test_answers(sockets: Any, peer: Peer) -> None:
    peer.connection._current = Known()
    assert sockets.answer([peer.connection], [b"{}"], ANSWER) == []
    assert peer.client.recv(1000) == ANSWER + b"2\r\n\r\n{}"
    assert peer.connection._current is None


@pytest.mark.parametrize(
    "state", [{"_current": None}, {"_current": "another"}, {"_behind": True}, {"descriptor": -1}], ids=str
)
def test_others_are_not_answered_here(sockets: Any, peer: Peer, state: dict[str, Any]) -> None:
    peer.connection._current = known = Known()
    for name, value in state.items():
        setattr(peer.connection, name, value)
    assert sockets.answer(["no connection", peer.connection], [b"{}"] * 2, ANSWER) == [0, 1]
    assert peer.connection._current in (known, None, "another")
    assert peer.received() == b""


@pytest.mark.parametrize("state", [{"closing": True}, {"waiting": 1}], ids=str)
def test_a_transport_that_closes_or_has_something_to_send_comes_first(
    sockets: Any, peer: Peer, state: dict[str, Any]
) -> None:
    peer.connection._current = known = Known()
    for name, value in state.items():
        setattr(peer.transport, name, value)
    assert sockets.answer([peer.connection], [b"{}"], ANSWER) == [0]
    assert peer.connection._current is known


def test_whose_key_has_a_place_is_not_answered_here(sockets: Any, peer: Peer) -> None:
    peer.connection._current = Known(key="somebody")
    assert sockets.answer([peer.connection], [b"{}"], ANSWER) == [0]


def test_what_the_socket_does_not_take_is_for_the_transport(sockets: Any, peer: Peer) -> None:
    peer.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    body = os.urandom(100_000)
    peer.connection._current = Known()
    assert sockets.answer([peer.connection], [body], ANSWER) == []
    assert peer.transport.written
    assert peer.received() + peer.transport.written == ANSWER + b"100000\r\n\r\n" + body


def test_a_client_that_has_gone_is_for_the_transport_too(sockets: Any, peer: Peer) -> None:
    peer.client.close()
    peer.connection._current = Known()
    assert sockets.answer([peer.connection], [b"{}"], ANSWER) == []
    assert peer.transport.written == ANSWER + b"2\r\n\r\n{}"


# --- those who are told their seqs --------------------------------------------------------------------------


# How long everything took, the journal, and the sync.
MS = 1234567.8, 0.0627, 0.0


def told(seq: int, name: bytes = b"t", epoch: int = 7) -> bytes:
    before = b'{"topic":"%b","epoch":%d,"first_seq":' % (name, epoch)
    return single_answers(before, seq, 1, after_seqs(1, *MS))[0]


def test_each_writer_is_told_its_seq(sockets: Any) -> None:
    peers = [Peer() for _ in range(3)]
    for each in peers:
        sockets.add(each.connection)
        each.connection._current = Known()
    first, second, third = (each.connection for each in peers)
    shares = [(Named(), [first, second], 9, "and", "more"), (Named(b"u" * 1024, 1 << 40), [third], 2**63 - 1)]
    assert sockets.tell(shares, ANSWER, *MS) == (3, [], [])
    bodies = [told(9), told(10), told(2**63 - 1, b"u" * 1024, 1 << 40)]
    assert [each.received() for each in peers] == [ANSWER + b"%d\r\n\r\n" % len(one) + one for one in bodies]
    assert [each.connection._current for each in peers] == [None] * 3
    for each in peers:
        each.close()


def test_who_is_not_told_here_is_told_the_same_elsewhere(sockets: Any, peer: Peer) -> None:
    peer.connection._current = Known()
    count, asking, bodies = sockets.tell(
        [(Named(), ["a bundle", peer.connection, "a bundle"], 9)], ANSWER, *MS
    )
    assert (count, asking, bodies) == (1, ["a bundle"] * 2, [told(9), told(11)])
    assert peer.received() == ANSWER + b"%d\r\n\r\n" % len(told(10)) + told(10)


@pytest.mark.parametrize(
    "given",
    [
        ([("topic", [], 1)], ANSWER, *MS),
        ([(Named(), (), 1)], ANSWER, *MS),
        ([(Named(), [], -1)], ANSWER, *MS),
        ([(Named(), [])], ANSWER, *MS),
        ([(Named(b"n" * 1025), [], 1)], ANSWER, *MS),
        ([], ANSWER, 1, 2, 3),
        ([], ANSWER),
    ],
)
def test_nobody_is_told_what_makes_no_sense(sockets: Any, given: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        sockets.tell(*given)


# --- heads that have come of late ---------------------------------------------------------------------------

LONG = HEAD + b"\r\nHost: " + b"h" * 60


def came(sockets: Any, peer: Peer, known: dict[bytes, Known], head: bytes) -> bool:
    """Whether a request with this head travels; then it is over."""
    peer.client.sendall(head + b"\r\n\r\nbody")
    travelling, others, _, _ = sockets.receive(known)
    assert bool(travelling) is not bool(others)
    if travelling:
        assert travelling[0][1][0][1][1] == [b"body"]
        assert peer.connection._current is known[LONG]
    peer.connection._current = None
    return bool(travelling)


def test_a_head_that_has_come_of_late_travels_again(sockets: Any, peer: Peer) -> None:
    known = {LONG: Known()}
    assert [came(sockets, peer, known, LONG) for _ in range(3)] == [True] * 3


def test_what_is_forgotten_does_not_travel_though_it_has_come_of_late(sockets: Any, peer: Peer) -> None:
    assert came(sockets, peer, {LONG: Known()}, LONG)
    assert not came(sockets, peer, {}, LONG)
    looked_at = {LONG: Known(convoys=None)}
    assert not came(sockets, peer, looked_at, LONG)


@pytest.mark.parametrize("other", [LONG[:-1] + b"i", LONG + b"\r\nX: y", LONG[:-9]])
def test_another_head_is_not_taken_for_one_that_has_come_of_late(
    sockets: Any, peer: Peer, other: bytes
) -> None:
    known = {LONG: Known()}
    assert came(sockets, peer, known, LONG)
    # Of the same length as a whole, and so in the same place.
    peer.client.sendall(other + b"\r\n\r\n" + b"b" * (len(LONG) + 4 - len(other)))
    travelling, others, _, _ = sockets.receive(known)
    assert (travelling, len(others)) == ([], 1)
    assert came(sockets, peer, known, LONG)


BEFORE, AFTER = LONG, b"\r\nAccept: */*"
KEY_LINES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")


@pytest.mark.parametrize("after", [AFTER, b""])
@pytest.mark.parametrize("line", KEY_LINES)
def test_a_head_that_has_come_of_late_with_another_key_travels_again(
    sockets: Any, peer: Peer, line: bytes, after: bytes
) -> None:
    known = {BEFORE + after: Known()}
    for key in (b"k-1", b"k-2", b"k-2", b"another", b"k", b"k-3"):
        peer.client.sendall(BEFORE + line + key + after + b"\r\n\r\nbody")
        travelling, others, _, _ = sockets.receive(known)
        assert (travelling, others) == (
            [("convoys", [("name", ([peer.connection], [b"body"], [key]))])],
            [],
        )
        peer.connection._current = None


@pytest.mark.parametrize("after", [AFTER, b""])
@pytest.mark.parametrize(
    "odd",
    [
        KEY_LINES[0] + b" -1",
        KEY_LINES[0] + b"k- ",
        KEY_LINES[0] + b"k\x7f1",
        KEY_LINES[0] + b"k\r1",
        KEY_LINES[0] + b"k-\r",
        b"\r\nIdempotency-Kez: k-1",
        b"\r\nIDEMPOTENCY-KEY: k-1",
        KEY_LINES[0] + b"k-1" + b"\0",
    ],
)
def test_an_odd_key_is_not_taken_for_one_that_has_come_of_late(
    sockets: Any, peer: Peer, odd: bytes, after: bytes
) -> None:
    known = {BEFORE + after: Known()}
    peer.client.sendall(BEFORE + KEY_LINES[0] + b"k-1" + after + b"\r\n\r\nbody")
    assert sockets.receive(known)[0]
    peer.connection._current = None
    request = BEFORE + odd + after + b"\r\n\r\nbody"
    peer.client.sendall(request)
    assert sockets.receive(known) == ([], [(peer.connection, request)], [], [])


@pytest.mark.parametrize("tail", [b"\r\nAccept: */+", b"\r\nAccept: */*\r\nX: y", b"", b"\r\nAccept"])
def test_another_end_of_a_head_with_a_key_is_seen(sockets: Any, peer: Peer, tail: bytes) -> None:
    known = {BEFORE + AFTER: Known()}
    whole = BEFORE + KEY_LINES[0] + b"k-1" + AFTER + b"\r\n\r\nbody"
    peer.client.sendall(whole)
    assert sockets.receive(known)[0]
    peer.connection._current = None
    other = BEFORE + KEY_LINES[0] + b"k-1" + tail + b"\r\n\r\n"
    # Of the same length as a whole, and so in the same place.
    other += b"b" * (len(whole) - len(other))
    peer.client.sendall(other)
    assert sockets.receive(known) == ([], [(peer.connection, other)], [], [])


def test_a_descriptor_belongs_to_one(sockets: Any, peer: Peer) -> None:
    other = Connection(peer.transport, peer.server.fileno())
    with pytest.raises(ValueError):
        sockets.add(other)
    peer.connection._current = other._current = Known()
    assert sockets.answer([other], [b"{}"], ANSWER) == [0]
    sockets.remove(other)
    assert sockets.answer([peer.connection], [b"{}"], ANSWER) == []
    with pytest.raises(ValueError):
        sockets.add(Connection(peer.transport, -1))
    with pytest.raises(OSError):
        sockets.add(Connection(peer.transport, 60_000))


def test_what_fails_with_one_of_them_costs_the_others_nothing(sockets: Any, peer: Peer) -> None:
    other, known = Peer(), heads()
    sockets.add(other.connection)
    peer.transport.is_closing = None  # type: ignore[method-assign,assignment]
    for each in (peer, other):
        each.client.sendall(REQUEST)
    groups, _, _, broken = sockets.receive(known)
    assert (groups[0][1][0][1][0], broken) == ([other.connection], [peer.connection])
    other.close()


@pytest.mark.parametrize(
    "types",
    [
        (),
        (Connection, Known),
        (1, 2, 3),
        (int, Known, Named),
        (Connection, int, Named),
        (Connection, Known, int),
    ],
)
def test_only_types_with_the_right_slots(types: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, AttributeError)):
        NATIVE.Sockets(*types)


def test_random_traffic() -> None:
    drive(NATIVE, random.Random(3), 300)
