"""Ours and others get the same load, from a generator that is compiled."""

import itertools
import socket
import threading
import time
from pathlib import Path

import pytest

from benchmarks import rabbit
from benchmarks.compiled import CompiledLoad, Plan, Sent, Target, answering, compiled
from benchmarks.load import GeneratorFailed
from benchmarks.payloads import COMPACT, NAMED
from benchmarks.peer_servers import NAMES, EventTable, JetStream, OurServer, Server, SpokenTo


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
