"""`topics backup`: what was committed comes back, once, whatever was in the way."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.flow.stages.lab import LargeLab
from tests.http.streaming import RunningApp
from tests.ops.backups import backup, content, fill, lab_in, restore
from tests.support.damage import FORMAT, OTHER_FORMAT, flip
from topics.core.settings import Settings
from topics.ops.backup import Backup, stopped_server
from topics.ops.backup_directory import BackupStore
from topics.ops.directory import Steps
from topics.storage.filesystem import Filesystem
from topics.storage.segment import Segment

# --- whole backups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_everything_comes_back(tmp_path: Path, is_clean: bool) -> None:
    lab = lab_in(tmp_path)
    lab.put("capped", cap_records=3)
    fill(lab)
    fill(lab, "capped", 9)
    lab.checkpoint()
    lab.delete("t", match="k1")
    lab.checkpoint()
    fill(lab, "late", 2)
    lab.checkpoint()
    lab.delete("t", before=3)
    lab.drop("late")
    fill(lab, "hot", 3)
    before = content(lab)
    lab.stop() if is_clean else lab.kill()
    backup(tmp_path)
    restored = restore(tmp_path, "again")
    assert content(restored) == before
    restored.restart()
    assert content(restored) == before
    fill(restored, "t", 5)
    restored.restart()
    assert restored.lines("t")[0] == 16
    # The original is as it was.
    lab.open()
    assert content(lab) == before


def test_zeros_that_were_written_ahead_are_not_copied(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.engine.write_ahead()
    lab.engine.rotate()
    fill(lab)
    before = content(lab)
    lab.kill()
    backup(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("journal/*.journal")) > 1 << 26
    shutil.rmtree(lab.directory)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.journal")) < 1 << 20
    assert content(restore(tmp_path, "again")) == before


def test_a_second_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab, count=24)
    lab.checkpoint(everything=True)
    lab.delete("t", match="k1")
    for _ in range(2):
        lab.checkpoint()
    first_content = content(lab)
    lab.stop()
    first = backup(tmp_path).json
    copies = {path: path.stat().st_mtime_ns for path in (tmp_path / "backups" / "segments").iterdir()}
    assert len(copies) == first["segments"] == 6
    for path in copies:
        segment = Segment(Filesystem(), str(path))
        assert not any(segment.flags(entry).any() for entry in segment.entries)
        segment.close()
    lab.open()
    # Flags in files that are not copied again.
    lab.delete("t", match="k2")
    fill(lab, count=8)
    for _ in range(3):
        lab.checkpoint(everything=True)
    second_content = content(lab)
    lab.stop()
    second = backup(tmp_path).json
    assert second["copied_bytes"] < first["copied_bytes"]
    for path, written in copies.items():
        assert path.stat().st_mtime_ns == written
    assert content(restore(tmp_path, "newest")) == second_content
    assert content(restore(tmp_path, "older", "--backup", first["name"])) == first_content


def test_topics_are_counted_whether_or_not_a_snapshot_knows_them(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    for name in ("a", "b", "c"):
        lab.write(name, name)
    lab.kill()
    assert backup(tmp_path).json["topics"] == 3
    lab.open()
    lab.checkpoint()
    lab.drop("a")
    lab.write("d", "d")
    lab.write("e", "e")
    lab.kill()
    assert backup(tmp_path).json["topics"] == 4
    assert len(content(restore(tmp_path, "again"))) == 4


def test_the_second_tier(tmp_path: Path) -> None:
    lab = lab_in(tmp_path, cold_dir=str(tmp_path / "cold"))
    fill(lab, count=12)
    lab.checkpoint(everything=True)
    lab.checkpoint()
    before = content(lab)
    lab.stop()
    moved = lab.segment_files()[0]
    shutil.move(moved, tmp_path / "cold" / moved.name)
    assert "--cold-dir" in refused("backup", tmp_path / "backups", "--data-dir", tmp_path / "data")
    backup(tmp_path, "--cold-dir", tmp_path / "cold")
    assert content(restore(tmp_path, "again")) == before


def test_routers_queues_cursors_and_stages(tmp_path: Path) -> None:
    """With the whole server, over HTTP."""
    app = RunningApp(tmp_path / "data")
    app.call("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    app.write("a", 1, 2, 3)
    app.call("PUT", "/v0/topics/q", {"type": "queue", "leases_durable": True, "lease_ms": 600_000})
    app.write("q", "job 1", "job 2")
    claimed = app.call("POST", "/v0/topics/q/claim", {"node": "n", "max": 1}).json["claimed"]
    epoch = app.call("GET", "/v0/topics/a").json["epoch"]
    app.call("PUT", "/v0/topics/a/cursors/me", {"seq": 2, "epoch": epoch})
    assert len(app.call("POST", "/v0/topics/b/diff", {}).json["records"]) == 3
    host, port = app.address
    outcome = topics("backup", tmp_path / "backups", "--url", f"http://{host}:{port}", "--json")
    assert (outcome.code, outcome.json["topics"]) == (0, 3), outcome.errors
    app.stop()
    outcome = topics("restore", tmp_path / "backups", tmp_path / "again", "--json")
    assert (outcome.code, outcome.json["topics"]) == (0, 3), outcome.errors
    app = RunningApp(tmp_path / "again")
    try:
        app.write("a", 4)
        assert [r["data"] for r in app.call("POST", "/v0/topics/b/diff", {}).json["records"]] == [1, 2, 3, 4]
        more = app.call("POST", "/v0/topics/q/claim", {"node": "n", "max": 5}).json["claimed"]
        assert len(claimed) == len(more) == 1
        cursor = app.call("GET", "/v0/topics/a/cursors/me").json
        # It says itself that it belongs to another epoch: everything is before it.
        assert (cursor["seq"], cursor["epoch"], cursor["lag"]) == (2, epoch, 4)
    finally:
        app.stop()


@pytest.mark.parametrize("snapshots", [0, 1])
def test_segments_that_only_the_journal_knows(tmp_path: Path, snapshots: int) -> None:
    lab = LargeLab(tmp_path / "data")
    lab.write("a", "before")
    for _ in range(snapshots):
        lab.checkpoint()
    lab.part("0", {"topic": ["a", "b"] * 5, "data": [str(number) for number in range(10)]})
    lab.commit_stage("0")
    before = content(lab)
    lab.stop()
    backup(tmp_path)
    assert content(restore(tmp_path, "again")) == before


# --- damage and mistakes --------------------------------------------------------------------------------


def test_what_was_damaged_already_is_named_and_announced(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint()
    lab.stop()
    flip(lab.segment_files()[1], 40)
    outcome = topics("backup", tmp_path / "backups", "--data-dir", tmp_path / "data", "--json")
    assert (outcome.code, len(outcome.json["damaged"])) == (1, 1)
    restored = restore(tmp_path, "again")
    assert restored.gaps("t") == [(5, 8, "cap")]
    assert restored.seqs("t") == [1, 2, 3, 4, 9, 10, 11]


def test_an_interrupted_backup_is_no_backup(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint()
    lab.stop()
    first = backup(tmp_path).json["name"]
    second = backup(tmp_path).json["name"]
    assert second != first
    (tmp_path / "backups" / second / "manifest.json").unlink()
    listed = topics("backup", tmp_path / "backups", "--list", "--json").json["backups"]
    assert [(one["name"], one["complete"]) for one in listed] == [(first, True), (second, False)]
    assert "incomplete" in topics("backup", tmp_path / "backups", "--list").output
    assert "incomplete" in refused("restore", tmp_path / "backups", tmp_path / "x", "--backup", second)
    outcome = topics("restore", tmp_path / "backups", tmp_path / "again", "--json")
    assert outcome.json["backup"] == first
    assert topics("backup", tmp_path / "backups", "--prune", 5, "--json").json["removed"] == [second]


def test_a_backup_that_cannot_be_read_stands_in_nobodys_way(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint()
    before = content(lab)
    lab.stop()
    backups, first = tmp_path / "backups", backup(tmp_path).json["name"]
    manifest = backups / first / "manifest.json"
    other_format = manifest.read_text().replace(f'"format": {FORMAT}', f'"format": {OTHER_FORMAT}')
    for other in (other_format, "{"):
        manifest.write_text(other)
        newest = backup(tmp_path).json["name"]
        listed = topics("backup", backups, "--list", "--json").json["backups"]
        assert [one["complete"] for one in listed if one["name"] in (first, newest)] == [False, True]
        assert f"{first}  unusable: " in topics("backup", backups, "--list").output
        # It may be the newest, and what it needs is not known: neither is decided without asking.
        assert "name it with --backup" in refused("restore", backups, tmp_path / "again")
        assert first in refused("backup", backups, "--prune", 1)
    assert content(restore(tmp_path, "again", "--backup", newest)) == before


def test_a_shared_segment_that_was_cut_short_is_copied_again(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint()
    lab.stop()
    backup(tmp_path)
    segment = min((tmp_path / "backups" / "segments").iterdir())
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])
    backup(tmp_path)
    assert segment.read_bytes() == whole
    assert topics("backup", tmp_path / "backups", "--verify").code == 0


def test_pruning_keeps_what_the_rest_needs(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    for _ in range(3):
        fill(lab, count=8)
        for _ in range(2):
            lab.checkpoint(everything=True)
        lab.delete("t", before=lab.topic("t").head - 6)
        for _ in range(3):
            lab.checkpoint()
        before = content(lab)
        lab.stop()
        backup(tmp_path)
        lab.open()
    segments = tmp_path / "backups" / "segments"
    many = len(list(segments.iterdir()))
    outcome = topics("backup", tmp_path / "backups", "--prune", 1, "--json")
    assert len(outcome.json["removed"]) == 2
    assert outcome.json["segment_bytes"] > 0
    assert len(list(segments.iterdir())) < many
    assert content(restore(tmp_path, "again")) == before


def test_a_backup_that_fails_in_between_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_in(tmp_path)
    fill(lab, count=24)
    lab.checkpoint(everything=True)
    lab.stop()
    with monkeypatch.context() as patched:
        patched.setattr(BackupStore, "add_flags", _no_room)
        assert "No space" in refused("backup", tmp_path / "backups", "--data-dir", tmp_path / "data")
    # What had been copied is not trusted: no manifest vouches for it.
    assert backup(tmp_path).json["copied_bytes"] > 1000
    listed = topics("backup", tmp_path / "backups", "--list", "--json").json["backups"]
    assert [one["complete"] for one in listed] == [False, True]
    assert len(restore(tmp_path, "again").seqs("t")) == 24


def _no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_source_is_told_of_every_piece(tmp_path: Path) -> None:
    """A running server holds its files only for as long as it hears of the backup."""
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint(everything=True)
    fill(lab, "late", 2)
    lab.stop()
    store = BackupStore(Filesystem(), str(tmp_path / "backups"))
    for is_known in (False, True):
        told: list[None] = []
        with store.alone(), stopped_server(Settings(data_dir=str(lab.directory))) as source:
            source.keep = partial(told.append, None)
            Backup(store, source, Steps()).take()
        assert source.segments
        # Segments that are there already are not copied, but it takes time to find that out.
        pieces = len(source.segments) * (1 if is_known else 2)
        assert len(told) >= len(source.snapshots) + len(source.journal) + pieces
