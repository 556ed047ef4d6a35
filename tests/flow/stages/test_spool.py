"""Parts on disk, written from several threads at once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.stages.lab import anything_goes
from tests.support.arrow import arrow_stream
from topics.flow.stages.parts import About, read_part, write_part
from topics.flow.stages.spool import PartMissing, names_digest, part_path, stage_key
from topics.storage.filesystem import Filesystem


class Interrupted(Filesystem):
    """Something else happens right before the first file is put into its place."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def rename(self, source: str, target: str) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().rename(source, target)


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
    fs = Interrupted(lambda: write(Filesystem(), path, "3"))
    assert write(fs, path, "1", "2").count == 2
    # The one that came last counts, and it is whole.
    assert read_part(fs, path).about.count == 2
    assert [file.name for file in tmp_path.iterdir()] == [Path(path).name]


def test_a_stage_that_is_dropped_while_a_part_arrives_is_gone(tmp_path: Path) -> None:
    path = part_path(str(tmp_path), stage_key("", "stage"), "0")

    def drop() -> None:
        for file in tmp_path.iterdir():
            file.unlink()

    assert write(Interrupted(drop), path, "1").count == 1
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
