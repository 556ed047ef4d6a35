"""A step that the disk refuses: nobody sees it, and it is made again when there is room."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.flow.routers.lab import RouterLab, survives
from tests.support.appending import append


@contextmanager
def full_disk(lab: RouterLab) -> Iterator[None]:
    """The journal takes nothing more, and there is no reserve."""
    engine = lab.engine
    write, give = engine.journal.write, engine.reserve.give

    def refuse(buffers: list[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    engine.journal.write = refuse  # type: ignore[method-assign]
    engine.reserve.give = lambda needed, keep=0: False  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine.journal.write = write  # type: ignore[method-assign]
        engine.reserve.give = give  # type: ignore[method-assign]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_step_that_finds_no_room_is_taken_back_whole(lab: RouterLab, exactly_once: bool) -> None:
    lab.route("r", "a", "b", exactly_once=exactly_once)
    lab.put("a", cap_records=3)
    lab.write("a", 0)
    assert lab.data("b") == [0]
    router, dest = lab.router("r"), lab.topic("b")
    lab.pulls = False
    # Copies, and holes for what goes before it is copied.
    for number in range(1, 6):
        lab.write("a", number)
    before = (dest.head, dest.assigned, dest.pending_count, router.sent, router.cursor, router.forwarded)
    with full_disk(lab):
        lab.routers.pull(dest)
        assert not lab.engine.queue.refusals.may_forward
    assert (
        dest.head,
        dest.assigned,
        dest.pending_count,
        router.sent,
        router.cursor,
        router.forwarded,
    ) == before
    assert lab.engine.totals.pending_bytes == 0
    # What a client writes now gets these seqs, and is looked through for keys.
    assert router.keys_scanned <= dest.assigned
    lab.engine.queue.refusals.resume()
    assert lab.write("b", "direct").first_seq == 2
    lab.pulls = True
    assert lab.data("b") == [0, "direct", 3, 4, 5]
    assert lab.gaps("b") == [(3, 4, "source_trim")]
    survives(lab)


def test_a_reader_is_not_refused_because_its_copies_cannot_be_made(lab: RouterLab) -> None:
    """That the disk is full is found out with what waits to be written before them."""
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.write("c", 1)
    lab.pulls = False
    refused: list[str] = []
    body = b'{"records":[{"data":2}]}'
    append(lab.engine, "c", body, lambda _: None, lambda error: refused.append(error.code))
    with full_disk(lab):
        lab.routers.pull(lab.topic("b"))
    assert refused == ["disk_full"]
    assert lab.topic("b").assigned == 0
    lab.engine.queue.refusals.resume()
    lab.pulls = True
    assert lab.data("b") == [1]


def test_a_step_that_the_background_could_not_make_is_still_owed(lab: RouterLab) -> None:
    lab.pulls = False
    lab.route("r", "a", "b")
    lab.write("a", 1)
    with full_disk(lab):
        lab.routers.forward(lambda: False)
    assert lab.topic("b").assigned == 0
    lab.engine.queue.refusals.resume()
    lab.background()
    assert lab.data("b") == [1]
