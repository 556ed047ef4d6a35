"""Large writes are rendered beside the loop, for the seqs that they will probably get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.open_doors import open_doors
from tests.log.harness import Lab
from tests.log.write.test_large_append import in_pieces
from topics.flow import large_writes
from topics.flow.large_writes import get_ready
from topics.log.write.large_append import LargeBatch
from topics.storage.witness import WAITED_FOR_MS


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_writes, "LARGE_BYTES", 0)


@pytest.fixture
def make_lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda **settings: Lab(tmp_path / "data", **settings)


BODY = json.dumps({"records": [{"data": n} for n in range(5)]}).encode()


def write(lab: Lab, meddle: Callable[[], None] | None = None) -> tuple[list[tuple[int, int]], bool]:
    """What it was rendered for, and whether that came true; `meddle` is called while it is rendered."""
    request = in_pieces(BODY)
    batch = request.batch
    assert isinstance(batch, LargeBatch)
    rendered: list[tuple[int, int]] = []

    class Watched(LargeBatch):
        __slots__ = ()

        def prepare(self, first_seq: int, ts: int, now: int | None = None) -> None:
            rendered.append((first_seq, ts))
            super().prepare(first_seq, ts, now)
            if meddle is not None:
                meddle()

    request.batch = watched = Watched(batch._parts)

    async def go() -> None:
        await get_ready(lab.engine, open_doors(lab.engine), "t", request, patient=False)
        assert lab.engine.queue.is_large
        lab.engine.append("t", request, lambda _: None, lambda _: None)
        lab.engine.queue.sync_now()

    asyncio.run(go())
    assert not lab.engine.queue.is_large
    return rendered, watched.prepared is not None


def test_a_topic_that_is_made_for_it(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(seq_base=7)
    now = lab.engine.now()
    assert write(lab) == ([(7, now)], True)
    assert lab.seqs("t") == [7, 8, 9, 10, 11]


def test_a_topic_that_is_ahead_of_the_clock(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.clock.step(10 * WAITED_FOR_MS)
    lab.write("t", 1)
    last = lab.engine.now()
    lab.clock.step(-10 * WAITED_FOR_MS)
    assert write(lab) == ([(2, last)], True)
    assert lab.engine.now() < last
    assert lab.seqs("t") == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("less", "rendered"), [(0, 0), (1, 1)])
def test_what_is_no_larger_than_that_is_rendered_on_the_loop(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, less: int, rendered: int
) -> None:
    monkeypatch.setattr(large_writes, "LARGE_BYTES", in_pieces(BODY).batch.size - less)
    lab = make_lab()
    assert len(write(lab)[0]) == rendered
    assert lab.seqs("t") == [1, 2, 3, 4, 5]


def test_others_that_write_meanwhile(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write("t", 1)
    writes = iter(range(1))
    rendered, came_true = write(lab, lambda: [lab.write("t", n) for n in writes] and None)
    # Rendered once: only the numbers are put right.
    assert ([seq for seq, _ in rendered], came_true) == ([2], True)
    assert lab.seqs("t") == [*range(1, 8)]
    lab.restart()
    assert lab.seqs("t") == [*range(1, 8)]


def test_numbers_that_get_longer_meanwhile(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    writes = iter(range(1))
    rendered, came_true = write(lab, lambda: [lab.write("t", *range(9)) for _ in writes] and None)
    assert ([seq for seq, _ in rendered], came_true) == ([1, 10], True)
    assert lab.seqs("t") == [*range(1, 15)]


def test_others_that_never_stop(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    counts = iter((9, 90, 900))
    rendered, came_true = write(lab, lambda: lab.write("t", *range(next(counts))) and None)
    assert (len(rendered), came_true) == (large_writes.RENDER_ATTEMPTS, False)
    assert lab.seqs("t") == [*range(1, 1000 + 5)]


def test_a_clock_that_goes_on_meanwhile(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    now = lab.engine.now()
    assert write(lab, lambda: lab.clock.advance(5)) == ([(1, now)], True)
