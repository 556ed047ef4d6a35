"""Writes that are committed together: what is left to say of them when their frame has rotted."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from tests.support.appending import body_of, write_of
from tests.support.damage import flip
from topics.log.write.group import append_group
from topics.storage.frame import FrameDraft, Kind


def test_a_frame_that_rots_still_tells_which_seqs_went_with_it(lab: Lab) -> None:
    lab.put("t", durability="fsync")
    lab.write("t", 1)
    append_group(
        lab.engine,
        [(lab.topic("t"), [write_of(body_of(2)), write_of(body_of(3))])],
        lab.engine.now(),
        lambda _: FrameDraft(Kind.CLOCK, ts=lab.engine.now()),
        lambda: None,
        pytest.fail,
        sync=True,
    )
    lab.engine.queue.sync_now()
    assert lab.topic("t").head == 3
    lab.kill()
    (victim,) = (frame for frame in lab.frames() if frame.kind == Kind.GROUP)
    flip(victim.path, victim.payload_at + 5)
    lab.open()
    assert lab.gaps("t") == [(2, 3, "cap")]
    assert lab.write("t", 4).first_seq == 4
