"""What a delete takes, and what it spares."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from tests.log.harness import Lab, gap, three_segments
from topics.log import delete_records
from topics.log.remove.deletion import Selector, note_unfound
from topics.log.write.operation import Op
from topics.storage import Kind


def selectors(lab: Lab) -> list[Selector]:
    return [
        msgspec.msgpack.decode(frame.path.read_bytes()[frame.payload_at : frame.end], type=Selector)
        for frame in lab.frames()
        if frame.kind == Kind.DELETE
    ]


def test_age_that_passes_while_a_delete_waits_for_the_disk(lab: Lab) -> None:
    lab.put("t", ttl_ms=100, durability="fsync")
    lab.write_each("t", 3)
    deleted: list[int] = []
    delete_records(lab.engine, lab.topic("t"), 4, None, deleted.append, deleted.append)  # type: ignore[arg-type]
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl"), "the delete is not committed yet"
    lab.engine.queue.sync_now()
    assert deleted == [0]
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


def test_a_run_emptied_in_the_middle_frees_its_journal(lab: Lab) -> None:
    lab.write_each("t", 1)
    lab.checkpoint(everything=True)
    lab.write_each("t", 4, tag="x")
    lab.delete("t", match="x")
    for _ in range(3):
        lab.write_each("t", 1)
        lab.checkpoint(everything=True)
        lab.restart()
    assert lab.seqs("t") == [1, 6, 7, 8]
    assert len(lab.journal_files()) <= 3


# --- by seqs ------------------------------------------------------------------------------------------------


def test_a_frame_names_the_seqs_that_carry_the_tag_and_no_tag(lab: Lab) -> None:
    """A server of the first edition would delete all that it names."""
    for tag in ("go", "keep", "go", None):
        lab.write("t", {"data": 0, "tag": tag})
    assert lab.delete("t", before=4, match="g*", seqs=[1, 2, 3, 4]) == 2
    assert selectors(lab)[-1] == Selector(5, seqs=[1, 3])
    lab.restart()
    assert lab.seqs("t") == [2, 4]


# --- looked at first ----------------------------------------------------------------------------------------


# --- how it is ordered --------------------------------------------------------------------------------------


def test_a_frame_names_what_was_asked_for_as_far_as_it_was_there(lab: Lab) -> None:
    lab.write_each("t", 3)
    lab.delete("t", seqs=[1])
    lab.delete("t", seqs=[4, 1, 3])
    assert selectors(lab)[-1] == Selector(4, seqs=[1, 3])


@pytest.mark.parametrize(("durability", "is_synced"), [("ephemeral", False), ("disk", True), ("fsync", True)])
def test_what_a_client_deletes_is_synced_wherever_records_are_kept(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, durability: str, is_synced: bool
) -> None:
    lab.put("t", durability=durability)
    lab.write_each("t", 2)
    ops: list[Op] = []
    monkeypatch.setattr(lab.engine.queue, "submit", ops.append)
    topic = lab.topic("t")
    delete_records(lab.engine, topic, 2, None, lambda deleted: None, lambda error: None)
    assert [op.sync for op in ops] == [is_synced]


def test_a_layer_hears_of_deleted_records_that_were_not_found(lab: Lab) -> None:
    lab.write_each("t", 3)
    topic, heard = lab.topic("t"), list[tuple[int, int, int]]()
    note_unfound(topic, Selector(9, seqs=[2, 7]))
    topic.attach(SimpleNamespace(note_deleted=lambda *told: heard.append(told)))
    note_unfound(topic, Selector(9, tag="x"))
    assert heard == []
    note_unfound(topic, Selector(9, seqs=[2, 7]))
    note_unfound(topic, Selector(9, before=5))
    assert heard == [(7, 7, 1), (1, 4, 4)]


def test_files_that_only_a_deletion_asked_are_not_kept_ready(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_segments(lab)
    unloaded: list[int] = []
    monkeypatch.setattr(lab.engine.store, "unload", lambda run: unloaded.append(run.base))
    lab.delete("t", seqs=[1])
    assert unloaded == []
    lab.delete("t", before=6, match="x")
    assert unloaded == [1, 5]
