"""What a directory holds for an extension is never dropped because that extension is not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.engine.lab import NodeLab
from tests.log.harness import Lab
from topics.log.recover.recovery import RecoveryFailed
from topics.storage.frame import FrameDraft, Kind

# Of no release so far.
FUTURE_KIND = 200


@pytest.fixture
def lab(tmp_path: Path) -> NodeLab:
    """With a named cursor."""
    lab = NodeLab(tmp_path)
    lab.write_each("t", 2)
    lab.commit(
        lambda done, fail: lab.node.cursors.put(
            lab.topic("t"), "spark", 2, None, lambda cursor, created: done(created), fail
        )
    )
    return lab


def cursors(lab: NodeLab) -> dict[str, int]:
    return {cursor.consumer: cursor.seq for cursor in lab.node.cursors.of("t")}


def use_without_extensions(directory: Path) -> None:
    """Two checkpoints, after which neither snapshot would name what this engine does not know."""
    bare = Lab(directory)
    bare.checkpoint(everything=True)
    bare.checkpoint(everything=True)
    bare.stop()


def test_an_engine_without_cursors_does_not_erase_them(lab: NodeLab, tmp_path: Path) -> None:
    lab.checkpoint()
    lab.stop()
    with pytest.raises(RecoveryFailed, match='"named_cursors"'):
        use_without_extensions(tmp_path)
    lab.open()
    assert cursors(lab) == {"spark": 2}
    lab.stop()


def test_nor_does_it_pass_over_their_frames(lab: NodeLab, tmp_path: Path) -> None:
    """No snapshot names them yet: the journal does."""
    lab.kill()
    with pytest.raises(RecoveryFailed, match=rf"kind {Kind.CURSOR:d}\b"):
        Lab(tmp_path)
    lab.open()
    assert cursors(lab) == {"spark": 2}
    lab.stop()


@pytest.mark.parametrize("is_below_a_snapshot", [False, True])
def test_a_frame_that_no_release_knows(lab: NodeLab, tmp_path: Path, is_below_a_snapshot: bool) -> None:
    lab.engine.queue.note([FrameDraft(FUTURE_KIND, b"what it says", ts=lab.engine.now())])
    lab.write("t", "after it")
    if is_below_a_snapshot:
        lab.checkpoint()
        assert lab.engine.store.unsealed.runs, "the snapshot needs the journal from before that frame"
    lab.kill()
    with pytest.raises(RecoveryFailed, match=rf"kind {FUTURE_KIND}\b"):
        NodeLab(tmp_path)


def with_a_future_frame(lab: NodeLab) -> None:
    lab.engine.queue.note([FrameDraft(FUTURE_KIND, b"what it says", ts=lab.engine.now())])
    lab.kill()


def with_a_future_extension(lab: NodeLab) -> None:
    lab.node.stages.identities.name = "dreams"
    lab.checkpoint()
    lab.stop()


@pytest.mark.parametrize(
    ("prepare", "named"),
    [(with_a_future_frame, f"kind {FUTURE_KIND}"), (with_a_future_extension, '"dreams"')],
)
def test_check_reports_it_and_a_start_is_refused(
    lab: NodeLab, tmp_path: Path, prepare: Callable[[NodeLab], None], named: str
) -> None:
    prepare(lab)
    outcome = topics("check", tmp_path, "--json")
    assert outcome.code == 1
    texts = [finding["text"] for finding in outcome.json["findings"]]
    assert any("a server cannot start here" in text and named in text for text in texts)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    command = [sys.executable, "-m", "topics.cli.main", "serve", "--data-dir", str(tmp_path), "--port", "0"]
    served = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # Behind the line that says that recovery has begun, there is one that says why it ended.
    begun, refusal = served.stderr.splitlines()
    assert (served.returncode, "recovering" in begun) == (2, True)
    assert named in refusal
    assert named in refused("compact", "--purge", "--data-dir", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
