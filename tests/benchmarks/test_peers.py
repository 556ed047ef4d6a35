"""Ours and others get the same load, from a generator that is compiled."""

import itertools
import shutil
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import peers, rabbit
from benchmarks.beside_redis import BARS, NAMED_BATCHES
from benchmarks.compiled import CompiledLoad, Greeting, Plan, Sent, Target, answering, compiled
from benchmarks.load import GeneratorFailed
from benchmarks.payloads import COMPACT, NAMED
from benchmarks.peer_servers import NAMES, EventTable, JetStream, OurServer, RedisStreams, Server, SpokenTo
from benchmarks.peers import bar_against
from benchmarks.session import TINY, Session
from tests.support import free_port


def test_any_server_that_speaks_v0_can_be_a_peer(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    server = OurServer(tmp_path, "disk")
    try:
        peer = SpokenTo(f"http://127.0.0.1:{server.target.port}", "fsync")
        peer.prepare()
        peer.prepare()
        plans = [Plan(peer.greetings(at), [peer.write(NAMES[0], COMPACT, range(10), at)]) for at in range(3)]
        load = CompiledLoad(program, peer.target, plans, 10)
        counted = load.run(0.05)[0] + load.run(0.05)[0]
        load.close()
        state = server._server.server.request("GET", f"/v0/topics/{NAMES[0]}").json
        assert state["config"]["durability"] == "fsync"
        # Those that were under way at the end of a round are of none.
        assert counted <= state["head_seq"] <= counted + 2 * 3 * 10
    finally:
        server.close()


def unstarted(kind: type[Server]) -> Server:
    """Good for everything but being spoken to."""
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", [OurServer, SpokenTo, JetStream, EventTable, rabbit.RabbitStreams])
def test_tag_and_node_are_told_to_every_peer(kind: type[Server]) -> None:
    plain, named = (unstarted(kind).write(NAMES[0], shape, [7], 0).data for shape in (COMPACT, NAMED))
    for word in (b"order:0007", b"node-3"):
        assert word not in plain
        assert word in named
    for said in (plain, named):
        assert COMPACT.fields(7)[-1] in said


def test_properties_of_a_message_have_their_sizes() -> None:
    section, told = rabbit._properties({"tag": "a:1"}).split(b"\xc1")
    assert section == b"\0\x53\x74"
    assert told == b"\x0b\x02\xa1\x03tag\xa1\x03a:1"
    assert told[0] == len(told) - 1


def test_only_redis_has_to_be_reached() -> None:
    assert bar_against(unstarted(RedisStreams), NAMED_BATCHES) == BARS[NAMED_BATCHES]
    for kind in (JetStream, EventTable, SpokenTo, rabbit.RabbitStreams):
        assert bar_against(unstarted(kind), NAMED_BATCHES) is None


ALL = [name for group in peers._GROUPS for name in group]


def test_every_peer_is_measured_and_redis_without_the_others(tmp_path: Path) -> None:
    assert peers._GROUPS[0] == ("Redis Streams",)
    assert {*ALL} == {*peers._peers(tmp_path, "disk"), peers.PEER}


@pytest.mark.parametrize("url", ["localhost:4000", "https://localhost:4000", "http://:4000", "http://a:b"])
def test_a_peer_has_an_address(url: str) -> None:
    with pytest.raises(RuntimeError, match="http://host:port"):
        SpokenTo(url, "disk")


def test_a_peer_that_is_not_there_is_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(directory: Path, durability: str) -> Server:
        raise RuntimeError("not installed")

    for kind in ("RedisStreams", "JetStream", "RabbitStreams", "EventTable"):
        monkeypatch.setattr(peers, kind, not_installed)
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv(peers.PEER, url)
    said: list[str] = []
    session = Session(TINY, said.append)
    with ExitStack() as stack:
        [ours] = peers._servers(session, tmp_path, "disk", ALL, stack)
        assert isinstance(ours, OurServer)
    missing = ("Redis Streams", "NATS JetStream", "RabbitMQ streams", "PostgreSQL")
    without = [f"{name}, disk (not installed)" for name in missing]
    without.append(f"TOPICS_BENCH_PEER, disk (nobody listens at {url}: Connection refused)")
    assert session.left_out == {"peers": without}
    assert said == [f"  left out: {what}" for what in without]


def test_without_a_server_of_ours_no_peer_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(directory: Path, durability: str) -> Server:
        raise RuntimeError("it did not start")

    monkeypatch.setattr(peers, "OurServer", broken)
    with ExitStack() as stack, pytest.raises(RuntimeError, match="did not start"):
        peers._servers(Session(TINY, str), tmp_path, "disk", ALL, stack)


@pytest.mark.parametrize("lines", [0, 4])
def test_a_reply_is_taken_to_its_end(tmp_path: Path, lines: int) -> None:
    """Four lines of a head and a body that ends without one: counted, or by what its head says."""
    program = compiled(tmp_path)
    with answering(program) as port:
        request = Sent(b"POST / HTTP/1.1\r\n\r\n" + COMPACT.body([1]), lines=lines)
        load = CompiledLoad(program, Target("127.0.0.1", port), [Plan((), [request])] * 2, 7)
        counted, seconds = load.run(0.05)
        load.close()
    assert counted
    assert counted % 7 == 0
    assert seconds >= 0.05


def test_a_reply_that_is_too_long_ends_the_run(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    with answering(program) as port:
        load = CompiledLoad(program, Target("127.0.0.1", port), [Plan((), [Sent(b"x", lines=2)])], 1)
        with pytest.raises(GeneratorFailed):
            load.run(0.05)
        load.close()


def test_paced_requests_are_all_answered_and_their_lateness_is_ordered(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    with answering(program) as port:
        load = CompiledLoad(program, Target("127.0.0.1", port), [Plan((), [Sent(b"x")])] * 2, 1)
        p50, p99, p999 = load.paced(0.1, 500.0)
        assert 0 < p50 <= p99 <= p999
        # And the same connections go on as before.
        assert load.run(0.02)[0]
        load.close()


def test_paced_requests_go_round_all_connections(tmp_path: Path) -> None:
    """However few there are: whoever asks for sixteen does not mean one."""
    asked = [0, 0, 0]

    def answer(connection: socket.socket, number: int) -> None:
        with connection:
            while connection.recv(100):
                asked[number] += 1
                connection.sendall(b"+OK\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        plans = [Plan((), [Sent(b"ask", lines=1)])] * len(asked)
        load = CompiledLoad(compiled(tmp_path), Target(*listener.getsockname()), plans, 1)
        threads = [
            threading.Thread(target=answer, args=(listener.accept()[0], number))
            for number in range(len(asked))
        ]
        for thread in threads:
            thread.start()
        done, seconds = load.steadily(100.0)(0.2)
        load.close()
        for thread in threads:
            thread.join()
    assert done == sum(asked) >= 20
    assert min(asked) > 3
    assert seconds >= 0.19


def test_what_nats_asks_in_between_belongs_to_no_reply(tmp_path: Path) -> None:
    """Wherever it is cut, and even between two of them."""
    pieces = [b"PI", b"NG\r\n+OK\r\n+OK\r\nP"], [b"ING\r\n+OK\r\n+OK\r\nPING\r", b"\n"]

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            for reply in itertools.cycle(pieces):
                if not connection.recv(100):
                    return
                for piece in reply:
                    connection.sendall(piece)
                    time.sleep(0.005)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        plan = Plan((), [Sent(b"ask", lines=2)])
        load = CompiledLoad(compiled(tmp_path), Target(*listener.getsockname()), [plan], 1)
        assert load.run(0.1)[0] > 2
        load.close()
        thread.join()


def test_what_nats_asks_of_one_ends_the_wait_for_no_other(tmp_path: Path) -> None:
    has_answered = threading.Event()

    def ask_behind(connection: socket.socket) -> None:
        with connection:
            while connection.recv(100):
                connection.sendall(b"+OK\r\n")
                time.sleep(0.01)
                connection.sendall(b"PING\r\n")

    def answer_late(connection: socket.socket) -> None:
        with connection:
            connection.recv(100)
            time.sleep(0.5)
            has_answered.set()
            connection.sendall(b"+OK\r\n")
            connection.recv(100)

    def serve(listener: socket.socket) -> None:
        ways = [threading.Thread(target=way, args=listener.accept()[:1]) for way in (ask_behind, answer_late)]
        for way in ways:
            way.start()
        for way in ways:
            way.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        plan = Plan((), [Sent(b"ask", lines=1)])
        load = CompiledLoad(compiled(tmp_path), Target(*listener.getsockname()), [plan, plan], 1)
        load.run(0.05)
        assert has_answered.is_set()
        load.close()
        thread.join()


def test_what_is_said_first_is_said_one_after_the_other(tmp_path: Path) -> None:
    heard: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for word in (b"hello", b"name", b"ask"):
                heard.append(connection.recv(100))
                connection.sendall(b"answer to " + word)
            while connection.recv(100):
                connection.sendall(b"answer to ask")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        first = [Greeting(word, b"to " + word) for word in (b"hello", b"name")]
        plan = Plan(first, [Sent(b"ask", end=b"to ask")])
        load = CompiledLoad(compiled(tmp_path), Target(*listener.getsockname()), [plan], 1)
        assert load.run(0.02)[0]
        load.close()
        thread.join()
    assert heard == [b"hello", b"name", b"ask"]


def test_rabbitmq_is_left_out_where_it_cannot_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbit, "_PROGRAM", tmp_path / "none")
    with pytest.raises(RuntimeError, match="not installed"):
        rabbit.RabbitStreams(tmp_path, "disk")
    monkeypatch.setattr(rabbit, "_PROGRAM", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _: "epmd")
    with pytest.raises(RuntimeError, match="does not sync"):
        rabbit.RabbitStreams(tmp_path, "fsync")
