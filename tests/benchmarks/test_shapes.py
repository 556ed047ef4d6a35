"""Shapes of appends: each is sent as its name says, and measured beside Redis."""

from pathlib import Path

import pytest

from benchmarks.append_shapes import COMMON, PLAIN
from benchmarks.compiled import CompiledLoad, Plan, Target, compiled
from benchmarks.contenders import PYTHON_CODEC, Topics
from benchmarks.session import ROOT, TINY, Session, ShapeOptions
from benchmarks.shapes import BESIDE_PLAIN, COST, run


def silent(_: str) -> None:
    return None


def measured(*only: str, api_keys: bool = False, servers: tuple[Path, ...] = ()) -> Session:
    return Session(TINY, silent, ShapeOptions(only=only, api_keys=api_keys, servers=servers))


def test_one_shape_is_measured_beside_plain_and_redis() -> None:
    session = measured("blanks")
    figures = list(run(session))
    assert not session.left_out
    assert {figure.name for figure in figures} == {"plain", "blanks"}
    ratios = [figure.ratio for figure in figures]
    assert ratios == sorted(ratios, key=lambda ratio: ratio or 0.0)
    for figure in figures:
        assert figure.value > 0
        assert figure.peer == "Redis everysec"
        assert figure.also[COST] > 0
        assert figure.also[BESIDE_PLAIN] > 0


@pytest.mark.timeout(120)
def test_protocols_and_topics_of_all_kinds_are_answered() -> None:
    names = ("http2", "websocket", "pipelined", "missing-topic", "watched", "router", "key-in-body")
    session = measured(*names)
    assert {figure.name for figure in run(session)} == {"plain", *names}
    assert not session.left_out


def test_servers_of_several_checkouts_are_compared_with_the_first() -> None:
    session = measured("plain", api_keys=True, servers=(ROOT, ROOT))
    figures = list(run(session))
    first = ROOT.name
    assert [figure.name for figure in figures[:2]] in (
        [f"plain, {first}", f"plain, {first}#2"],
        [f"plain, API key, {first}", f"plain, API key, {first}#2"],
    )
    assert [figure.also[f"÷ {first}"] == 1.0 for figure in figures] == [True, False] * 2


def test_every_key_is_new_also_in_a_later_process(tmp_path: Path) -> None:
    server = Topics(tmp_path / "topics")
    program = compiled(tmp_path)
    shape = next(shape for shape in COMMON if shape.key == "header")
    replies = 0
    try:
        for _ in range(2):
            load = CompiledLoad(program, Target("127.0.0.1", server.port), [shape.plan(0)], 1)
            replies += load.run(0.02)[0] + 1
            load.close()
        states = [server.server.get(f"/v0/topics/{name}")["head_seq"] for name in shape.names]
    finally:
        server.close()
    # A key that came twice would have added no record.
    assert sum(states) == replies


def test_requests_before_the_repeated_ones_are_sent_once(tmp_path: Path) -> None:
    server = Topics(tmp_path / "topics")
    requests = [request._replace(status=b"20") for request in PLAIN.plan(0).requests]
    try:
        plan = Plan((), requests[:2], once=1)
        load = CompiledLoad(compiled(tmp_path), Target("127.0.0.1", server.port), [plan], 1)
        assert load.run(0.05)[0] > 2
        load.close()
        assert server.server.get(f"/v0/topics/{PLAIN.names[0]}")["head_seq"] == 1
    finally:
        server.close()


def test_servers_get_the_switches_of_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in PYTHON_CODEC.items():
        monkeypatch.setenv(name, value)
    server = Topics(tmp_path / "topics")
    try:
        told = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    finally:
        server.close()
    assert {f"{name}={value}".encode() for name, value in PYTHON_CODEC.items()} <= set(told)
