"""Segments that a commit has adopted are read as they were written, and written as they were."""

import shutil
from pathlib import Path

from tests.golden.make_adopted import ADOPTED, DATA, GOLDEN, SEGMENT, TOPIC, TS, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.log.write.segment_import import decode_import
from topics.storage.fileheader import version_of
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal import ADOPTING_VERSION, VERSION
from topics.storage.journal_reader import JournalReader
from topics.storage.segment import Segment, file_name


def test_frames_and_segment_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    frames = [item for item in reader.frames() if isinstance(item, Frame)]
    assert [frame.kind for frame in frames] == [Kind.CLOCK, Kind.ADOPT, Kind.OWNED_STAGE]
    assert {frame.ts for frame in frames} == {TS}
    adopted = frames[1]
    assert (adopted.topic_id, decode_import(adopted)) == (TOPIC, ADOPTED)
    with Segment(Filesystem(), str(golden / "segments" / file_name(SEGMENT))) as segment:
        entry = segment.entry(TOPIC, ADOPTED.base)
        segment.verify(entry)
        assert (entry.count, entry.first_ts, entry.last_ts) == (len(DATA), TS, TS)
        rows = bytes(segment.columns(entry).rows).splitlines()
        assert [row.rpartition(b":")[2] for row in rows] == [data + b"}" for data in DATA]


def test_only_a_file_that_adopts_is_refused_by_older_releases() -> None:
    files = sorted((GOLDEN / "journal").iterdir())
    assert [version_of(file.read_bytes()) for file in files] == [VERSION, ADOPTING_VERSION]


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=3)
