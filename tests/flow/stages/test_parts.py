"""Parts of stages: how they are read, spooled, counted, and dropped when nothing is heard of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.stages.lab import StageLab, anything_goes
from tests.support.arrow import arrow_stream
from tests.support.damage import flip
from tests.support.disk import HookedDisk
from topics.core.errors import ApiError
from topics.flow.stages import spool as module
from topics.flow.stages.parts import About, read_part, read_parts, write_part
from topics.flow.stages.spool import IDLE_MS, MAX_PARTS, PartMissing, names_digest, part_path, stage_key
from topics.storage.filesystem import Filesystem


def test_parts_are_written_in_the_order_of_the_commit_and_only_those_it_names(lab: StageLab) -> None:
    for part in "012":
        lab.part(part, {"data": [part]}, topic="a")
    lab.commit_stage("2", "0")
    assert lab.data("a") == [2, 0]
    assert len(lab.spooled()) == 1


def test_the_commit_may_name_the_topic_of_rows_that_have_none(lab: StageLab) -> None:
    lab.part("0", {"topic": [None, "b"], "data": ["1", "2"]})
    with pytest.raises(ApiError, match="rows without a topic"):
        lab.commit_stage("0")
    assert lab.commit_stage("0", topic="a") == ({"a": (1, 1, 1), "b": (1, 1, 1)}, False)


def test_a_part_that_rotted_is_not_committed(lab: StageLab) -> None:
    lab.part("0", {"data": ['"hello"']}, topic="a")
    path = next((lab.directory / "stages").glob("*.part"))
    flip(path, path.stat().st_size // 2)
    with pytest.raises(ApiError, match="damaged"):
        lab.commit_stage("0")


def test_how_many_bytes_a_commit_may_have_and_from_how_many_on_it_is_a_large_one(lab: StageLab) -> None:
    size = sum(lab.part(part, {"data": ['"hello"']}, topic="a").bytes for part in "01")
    paths = lab.stages.open.paths("", "s", ["0", "1"])
    assert not read_parts(lab.disk, paths, None, size, size).is_large
    assert read_parts(lab.disk, paths, None, size, size - 1).is_large
    with pytest.raises(ApiError) as refusal:
        read_parts(lab.disk, paths, None, size - 1, size)
    assert refusal.value.code == "payload_too_large"


def test_an_owner_has_so_many_parts_at_most(lab: StageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PARTS == 100_000
    monkeypatch.setattr(module, "MAX_PARTS", 2)
    rows = {"data": ["1"]}
    lab.part("0", rows, topic="a")
    with pytest.raises(ApiError):
        lab.part("1", {"data": ["{"]}, topic="a")
    lab.part("0", rows, topic="a", stage="other")
    lab.run(lambda: _started(lab))
    with pytest.raises(ApiError) as refusal:
        lab.part("1", rows, topic="a")
    assert refusal.value.detail == {"limit": "max_stage_parts", "max": 2}
    # One that is there is replaced, and another owner has places of its own.
    lab.part("0", rows, topic="a")
    lab.part("1", rows, topic="a", owner="a")
    lab.commit_stage("0")
    lab.part("1", rows, topic="a")
    lab.drop_stage("other")
    lab.part("2", rows, topic="a")
    assert (lab.stages.open.stages, lab.stages.open.parts) == (2, 3)
    lab.clock.advance(IDLE_MS)
    lab.collect()
    assert (lab.stages.open.stages, lab.stages.open.parts) == (0, 0)


async def _started(lab: StageLab) -> None:
    lab.restart()
    lab.stages.start()


@pytest.mark.parametrize("step_ms", [-10 * IDLE_MS, 10 * IDLE_MS])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_stage(lab: StageLab, step_ms: int) -> None:
    lab.part("0", {"data": ["1"]}, topic="a")
    lab.clock.step(step_ms)
    lab.clock.advance(IDLE_MS - 1)
    lab.collect()
    assert lab.stages.open.parts == 1
    lab.clock.advance(1)
    lab.collect()
    assert lab.stages.open.parts == 0


def interrupted(meanwhile: Callable[[], object]) -> Filesystem:
    """Something else happens right before the first file is renamed."""
    coming = [meanwhile]

    def hook(operation: str, path: Path) -> None:
        if operation == "rename" and coming:
            coming.pop()()

    return HookedDisk(hook)


def write(fs: Filesystem, path: str, *data: str) -> About:
    return write_part(
        fs,
        path,
        arrow_stream({"data": list(data)}),
        max_bytes=1 << 20,
        default_topic="t",
        check_topic=anything_goes,
    )


def test_two_writers_of_one_part_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    path = part_path(str(tmp_path), stage_key("", "stage"), "0")
    fs = interrupted(lambda: write(Filesystem(), path, "3"))
    assert write(fs, path, "1", "2").count == 2
    # The one that came last counts, and it is whole.
    assert read_part(fs, path).about.count == 2
    assert [file.name for file in tmp_path.iterdir()] == [Path(path).name]


def test_a_stage_that_is_dropped_while_a_part_arrives_is_gone(tmp_path: Path) -> None:
    path = part_path(str(tmp_path), stage_key("", "stage"), "0")

    def drop() -> None:
        for file in tmp_path.iterdir():
            file.unlink()

    assert write(interrupted(drop), path, "1").count == 1
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_cannot_be_read_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat without its parts is answered as if it brought the same rows as before."""
    path = part_path(str(tmp_path), stage_key("", "stage"), "0")
    with pytest.raises(PartMissing):
        read_part(Filesystem(), path)

    def open_too_many(fs: Filesystem, path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Filesystem, "open", open_too_many)
    with pytest.raises(OSError, match="Too many"):
        read_part(Filesystem(), path)


def test_what_a_commit_names_has_no_order_and_no_directory() -> None:
    def names(*parts: str, stage: str = "s", owner: str = "", directory: str = "/d", **topic: str) -> int:
        paths = [part_path(directory, stage_key(owner, stage), part) for part in parts]
        return names_digest(paths, topic.get("topic"))

    assert names("0", "1") == names("1", "0") == names("1", "0", directory="/elsewhere")
    different = [names("0", "1"), names("0"), names("01"), names(), names("0", "1", "2")]
    different += [names("0", "1", stage="t"), names("0", "1", owner="a."), names("0", "1", topic="a")]
    assert len(set(different)) == len(different)
