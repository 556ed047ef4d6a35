"""Writes the golden files of segments that a commit has adopted, which came after those of make.py.

PYTHONPATH=src:. python tests/golden/make_adopted.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from topics import codec
from topics.flow.stages.identities import Commit, OwnedCommit, StageRange
from topics.log.run import HotColumns
from topics.log.write.segment_import import ImportedRun
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.segment import SegmentWriter

GOLDEN = Path(__file__).parent / "adopted"
TS = 1_700_000_000_000
TOPIC, SEGMENT = 1, 3
DATA = [b"5", b'"six"']
ADOPTED = ImportedRun(5, 2, 6, TS, SEGMENT)
COMMIT = OwnedCommit("", "stream-1", Commit(7, 2, 0xFEED, [StageRange("orders", 5, 6, 2, TOPIC)]), [])


def write_journal(fs: Filesystem, directory: str) -> None:
    """A file in which nothing is adopted, and one in which something is."""
    journal = Journal(fs, directory, [], 0)
    journal.write([FrameDraft(Kind.CLOCK, b"", ts=TS)])
    journal.rotate(to_adopt=True)
    adopted = FrameDraft(Kind.ADOPT, ADOPTED.payload(), TOPIC, ADOPTED.base, ADOPTED.count, TS)
    fact = FrameDraft(Kind.OWNED_STAGE, msgspec.msgpack.encode(COMMIT), ts=TS)
    header = {"topic_id": TOPIC, "first_seq": ADOPTED.base, "count": ADOPTED.count, "ts": TS}
    journal.write([FrameDraft(Kind.GROUP, [adopted, fact], **header)])
    journal.close()


def write_segment(fs: Filesystem, directory: str) -> None:
    columns = HotColumns(ADOPTED.base)
    columns.extend(codec.encode([codec.from_values(DATA, None, None, None)], ADOPTED.base, TS))
    writer = SegmentWriter(SEGMENT)
    writer.add(TOPIC, columns.view(), None)
    writer.write(fs, directory, SEGMENT)


def write_all(root: Path) -> None:
    fs = Filesystem()
    for name in ("journal", "segments"):
        fs.make_dirs(str(root / name))
    write_journal(fs, str(root / "journal"))
    write_segment(fs, str(root / "segments"))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)
