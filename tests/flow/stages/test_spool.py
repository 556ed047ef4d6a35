"""Parts on disk, written from several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.flow.stages.lab import anything_goes
from tests.support.arrow import arrow_stream
from topics.flow.stages.parts import About, read_part, write_part
from topics.flow.stages.spool import part_path, stage_key
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
