"""`topics restore`: any moment a backup knows comes back, and from damage nothing does."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.command import refused, topics
from tests.engine.lab import NodeLab
from tests.http.streaming import RunningApp
from tests.log.harness import T0
from tests.ops.backups import TAGGED, backup, content, fill, lab_in, restore
from tests.support.damage import flip
from topics.log.recover.recovery import RecoveryFailed
from topics.ops import restore as restore_module
from topics.storage.filesystem import Filesystem

# --- epochs ---------------------------------------------------------------------------------------------


def test_restored_topics_are_another_instance(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    old = lab.topic("t").id
    lab.stop()
    backup(tmp_path)
    restored = restore(tmp_path, "again")
    epoch = restored.topic("t").id
    assert epoch > old
    page = restored.diff("t", 5, epoch=old)
    assert page.tombstone is not None
    assert page.tombstone.reason == "recreated"
    assert restored.diff("t", 5, epoch=epoch).tombstone is None
    # Topics made from now on are newer still.
    restored.write("u", 1)
    assert restored.topic("u").id > epoch
    restored.stop()
    again = topics("backup", tmp_path / "second", "--data-dir", tmp_path / "again")
    assert again.code == 0, again.errors
    assert topics("restore", tmp_path / "second", tmp_path / "third").code == 0
    third = NodeLab(tmp_path / "third")
    assert min(topic.id for topic in third.engine.by_id.values()) > restored.topic("u").id
    assert max(topic.id for topic in third.engine.by_id.values()) < 1 << 53


def test_no_topic_of_a_restored_directory_is_in_its_first_life(tmp_path: Path) -> None:
    """Not even one that is new: the old server may have made one of that name after the backup."""
    lab = lab_in(tmp_path)
    fill(lab)
    assert lab.topic("t").first_life
    lab.stop()
    backup(tmp_path)
    restored = restore(tmp_path, "again")
    for _ in range(2):
        assert not restored.topic("t").first_life
        restored.write("u", 1)
        assert not restored.topic("u").first_life
        restored.drop("u")
        restored.restart()


def test_two_restores_at_once_have_different_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one second, and from the same backup: a reader of the first is told by the second."""
    lab = lab_in(tmp_path)
    fill(lab)
    lab.stop()
    backup(tmp_path)
    clock = iter((2e9, 2e9 + 0.01))
    monkeypatch.setattr(restore_module, "time", SimpleNamespace(time=lambda: next(clock)))
    first, second = restore(tmp_path, "first"), restore(tmp_path, "second")
    assert first.topic("t").id < second.topic("t").id


def test_restored_epochs_are_none_of_the_old_ones_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_in(tmp_path)
    for name in "abcd":
        lab.write(name, 1)
    old = {topic.id for topic in lab.engine.by_id.values()}
    lab.drop("a")
    lab.stop()
    backup(tmp_path)
    monkeypatch.setattr(restore_module, "time", SimpleNamespace(time=lambda: 0.0))
    restored = restore(tmp_path, "again")
    new = {topic.id for topic in restored.engine.by_id.values()}
    assert min(new) > max(old)
    assert restored.engine.next_topic_id > max(new)
    assert restored.seqs("d") == [1]


def test_the_same_history_keeps_its_epochs(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.stop()
    backup(tmp_path)
    restored = restore(tmp_path, "again", "--same-history")
    assert restored.topic("t").id == lab.topic("t").id
    assert restored.topic("t").first_life
    assert restored.diff("t", 5, epoch=lab.topic("t").id).tombstone is None


# --- points in time -------------------------------------------------------------------------------------


def test_any_moment_the_backup_knows(tmp_path: Path) -> None:
    """Between its older snapshot and its end every moment is exact: deletes after it have not happened."""
    lab = lab_in(tmp_path)
    fill(lab, count=10)
    lab.checkpoint(everything=True)
    moments = []
    for step in range(6):
        lab.clock.advance(1000)
        moments.append((lab.clock.now_ms(), content(lab)))
        lab.clock.advance(1000)
        if step == 1:
            lab.delete("t", match="k0")
        elif step == 3:
            lab.checkpoint(everything=True)
            lab.drop("t")
        else:
            fill(lab, "t", 3)
    lab.stop()
    described = backup(tmp_path).json
    assert described["from_ms"] < moments[0][0]
    for number, (at, expected) in enumerate(moments):
        assert content(restore(tmp_path, f"at{number}", "--at", at)) == expected


def test_a_moment_ends_with_its_millisecond(tmp_path: Path) -> None:
    """Also where a snapshot was made in it."""
    lab = lab_in(tmp_path)
    fill(lab, count=5)
    # What was written so far is in the snapshot alone.
    lab.engine.rotate()
    lab.checkpoint(everything=True)
    first = lab.clock.now_ms()
    lab.write("t", "in the millisecond of the snapshot")
    fill(lab, count=3)
    lab.checkpoint(everything=True)
    lab.write("t", "and of the next one")
    second = lab.clock.now_ms()
    fill(lab, count=2)
    lab.stop()
    assert backup(tmp_path).json["from_ms"] == first
    for at, head in ((first, 6), (first + 999, 6), (first + 1000, 7), (second - 1, 8), (second, 10)):
        restored = restore(tmp_path, f"at{at}", "--at", at)
        assert restored.seqs("t") == list(range(1, head + 1))
        restored.stop()


def test_the_last_of_equal_times_counts(tmp_path: Path) -> None:
    """In memory and sealed, in the middle of a run and at its ends."""
    lab = lab_in(tmp_path)
    lab.put("t")
    times = []
    for count in (3, 2, 4, 1, 1):
        lab.clock.advance(1000)
        lab.write("t", *range(count))
        times.append((lab.clock.now_ms(), lab.topic("t").head))
    for _ in range(2):
        topic = lab.topic("t")
        assert [restore_module.head_at(topic, at) for at, _ in times] == [head for _, head in times]
        before = [0] + [head for _, head in times[:-1]]
        assert [restore_module.head_at(topic, at - 1) for at, _ in times] == before
        lab.checkpoint(everything=True)
        lab.restart(clean=True)


def test_keys_are_restored_with_their_records_and_no_others(tmp_path: Path) -> None:
    """A retry of what the restore left out is written; one of what it kept is not."""
    lab = lab_in(tmp_path)
    # The restore happens today, long after.
    lab.put("t", idempotency_window_ms=10**12)
    for number in range(6):
        lab.clock.advance(1000)
        lab.write("t", number, number, key=f"k{number}")
    at = lab.clock.now_ms() - 2500
    for _ in range(2):
        lab.checkpoint(everything=True)
    lab.stop()
    backup(tmp_path)
    for target, *arguments in (
        ("all",),
        ("seq", "--seq", "t=7"),
        ("inside", "--seq", "t=11"),
        ("moment", "--at", at),
        ("same", "--same-history"),
    ):
        restored = restore(tmp_path, target, *arguments)
        head = restored.topic("t").head
        again = [restored.write("t", "x", key=f"k{number}") for number in range(6)]
        assert [op.deduped for op in again] == [2 * number + 2 <= head for number in range(6)], target
        assert [op.first_seq for op in again if op.deduped] == [*range(1, head, 2)], target
        restored.stop()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_moment_after_the_clock_was_set_back(tmp_path: Path, sealed: bool) -> None:
    """What was written by a clock that was ahead came before it, though its time is later."""
    lab = lab_in(tmp_path)
    fill(lab, count=3)
    if sealed:
        lab.checkpoint(everything=True)
    lab.clock.step(10 * 86_400_000)
    fill(lab, "ahead", 2)
    fill(lab, "t", 2)
    lab.clock.step(-10 * 86_400_000)
    moments = []
    for _ in range(3):
        # `t` is ahead of the clock, so its records do not tell when they were written; its frames do.
        fill(lab, "t", 1)
        fill(lab, "u", 1)
        moments.append((lab.clock.now_ms(), content(lab)))
    lab.stop()
    assert backup(tmp_path).json["to_ms"] == lab.clock.now_ms()
    for number, (at, expected) in enumerate(moments):
        assert content(restore(tmp_path, f"at{number}", "--at", at)) == expected


def test_a_moment_before_the_backup(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab, count=10)
    fill(lab, "young", 3)
    at = T0 + 6500
    lab.delete("t", match="k0")
    for _ in range(2):
        lab.clock.advance(1000)
        lab.checkpoint(everything=True)
    lab.stop()
    backup(tmp_path)
    outcome = topics("restore", tmp_path / "backups", tmp_path / "again", "--at", at, "--json")
    assert outcome.code == 0, outcome.errors
    assert outcome.json["exact"] is False
    restored = NodeLab(tmp_path / "again")
    # Six records had been written by then; of those, the deleted ones cannot come back.
    assert restored.lines("t") == (6, 2, 1)
    assert restored.seqs("t") == [2, 3, 5, 6]
    assert restored.lines("young") == (0, 1, 1)
    restored.write("t", "next")
    assert restored.seqs("t") == [2, 3, 5, 6, 7]
    restored.restart()
    assert restored.seqs("t") == [2, 3, 5, 6, 7]
    text = topics("restore", tmp_path / "backups", tmp_path / "text", "--at", at).output
    assert "no backup holds that very moment" in text


def test_a_moment_before_all_time(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.stop()
    backup(tmp_path)
    outcome = topics("restore", tmp_path / "backups", tmp_path / "again", "--at", "0001-01-01T00:00:00+14:00")
    assert (outcome.code, outcome.errors) == (0, "")
    assert NodeLab(tmp_path / "again").engine.by_name == {}


def test_a_seq(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab, "t", 11)
    fill(lab, "u", 4)
    lab.checkpoint()
    lab.delete("t", match="k1")
    before = content(lab)
    lab.stop()
    backup(tmp_path)
    for head in (0, 1, 2, 4, 6, 10, 11):
        restored = restore(tmp_path, f"upto{head}", "--seq", f"t={head}")
        assert restored.lines("t")[0] == head
        assert restored.seqs("t") == [seq for seq in before["t"][0]["seqs"] if seq <= head]
        assert content(restored)["u"] == before["u"]
        kept = before["t"][1].splitlines()[: len(restored.seqs("t"))]
        assert restored.diff("t", shape=TAGGED).rows.splitlines() == kept
        restored.write("t", {"data": "new", "tag": "k1"})
        assert restored.delete("t", match="k1") == 1
        restored.restart()
        assert restored.lines("t")[0] == head + 1


def test_leases_and_routers_follow_a_topic_that_was_taken_back(tmp_path: Path) -> None:
    app = RunningApp(tmp_path / "data")
    app.call("PUT", "/v0/topics/q", {"type": "queue", "leases_durable": True, "lease_ms": 600_000})
    app.call("PUT", "/v0/routers/r", {"source": "q", "dest": "copies"})
    app.write("q", 1, 2, 3, 4)
    assert len(app.call("POST", "/v0/topics/q/claim", {"node": "n", "max": 4}).json["claimed"]) == 4
    assert len(app.call("POST", "/v0/topics/copies/diff", {}).json["records"]) == 4
    app.stop()
    backup(tmp_path)
    assert topics("restore", tmp_path / "backups", tmp_path / "again", "--seq", "q=2").code == 0
    app = RunningApp(tmp_path / "again")
    try:
        app.write("q", "new")
        jobs = app.call("POST", "/v0/topics/q/claim", {"node": "n", "max": 4}).json["claimed"]
        assert [job["data"] for job in jobs] == ["new"]
        copies = app.call("POST", "/v0/topics/copies/diff", {}).json["records"]
        assert [record["data"] for record in copies] == [1, 2, 3, 4, "new"]
    finally:
        app.stop()


# --- damage and mistakes --------------------------------------------------------------------------------


def backup_files(directory: Path) -> list[Path]:
    files = [path for path in (directory / "backups").rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(path for path in files if not path.name.startswith("."))


def test_damage_anywhere_is_found_before_anything_is_written(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.checkpoint()
    lab.delete("t", match="k1")
    fill(lab)
    for _ in range(3):
        lab.checkpoint()
    lab.stop()
    backup(tmp_path)
    names = {path.suffix or path.name for path in backup_files(tmp_path)}
    assert names == {".segment", ".snapshot", ".journal", ".json", "flags"}
    for path in backup_files(tmp_path):
        whole = path.read_bytes()
        flip(path, len(whole) // 2)
        assert path.name in refused("restore", tmp_path / "backups", tmp_path / "again")
        path.write_bytes(whole[:-1])
        assert path.name in refused("restore", tmp_path / "backups", tmp_path / "again")
        if path.name != "manifest.json":
            path.unlink()
            assert path.name in refused("restore", tmp_path / "backups", tmp_path / "again")
            outcome = topics("backup", tmp_path / "backups", "--verify", "--json")
            assert outcome.code == 1
            assert path.name in outcome.json["findings"][0]
        path.write_bytes(whole)
    assert not (tmp_path / "again").exists()
    assert topics("backup", tmp_path / "backups", "--verify").code == 0


def test_damage_at_the_end_of_the_journal_is_no_torn_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What proves that it had been written stays behind on the old machine; the backup says so instead."""
    lab = lab_in(tmp_path)
    fill(lab, count=3)
    last = lab.frames()[-1]
    lab.kill()
    flip(last.path, last.payload_at + 5)
    monkeypatch.setattr(Filesystem, "boot_id", lambda _: lab.disk.boot)
    backup(tmp_path)
    monkeypatch.undo()
    restored = restore(tmp_path, "again")
    assert restored.seqs("t") == [1, 2]
    assert restored.lines("t")[0] >= 3
    assert restored.gaps("t")[0][0] == 3


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_a_restore_that_ends_in_its_last_moment(
    tmp_path: Path, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server does not start on half of it, least of all as an empty one."""
    lab = lab_in(tmp_path)
    fill(lab)
    lab.stop()
    backup(tmp_path)
    rename = Filesystem.rename
    done: list[str] = []

    def interrupted(self: Filesystem, source: str, target: str) -> None:
        if "/.restoring/" in source and "/.restoring/" not in target:
            if len(done) == moved:
                raise OSError("the machine stopped")
            done.append(target)
        rename(self, source, target)

    target = tmp_path / "again"
    with monkeypatch.context() as patched:
        patched.setattr(Filesystem, "rename", interrupted)
        assert "stopped" in refused("restore", tmp_path / "backups", target)
    if moved:
        with pytest.raises(RecoveryFailed):
            NodeLab(target)
        assert "not empty" in refused("restore", tmp_path / "backups", target)
        shutil.rmtree(target)
    assert len(restore(tmp_path, "again").seqs("t")) == 11
