"""Commits whose parts are known are read as they were written, and written as they were."""

import hashlib
import shutil
from pathlib import Path

from tests.golden.make_named_stages import (
    GOLDEN,
    ONLY_PART,
    OTHER_STAGE,
    STAGE,
    TOPIC,
    commits,
    write_all,
)
from tests.golden.same_bytes import assert_same_bytes
from topics.flow.stages.identities import Identities, NamedCommit
from topics.log.seal.snapshot_state import decode
from topics.storage.fileheader import checksum
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.snapshot import SnapshotStore


def test_frames_and_snapshot_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    frames = [item for item in reader.frames() if isinstance(item, Frame)]
    assert [frame.kind for frame in frames] == [Kind.OWNED_STAGE] * 3
    replayed, loaded = Identities(), Identities()
    for frame in frames:
        replayed.replay(frame)
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    loaded.load(state.extensions[Identities.name])
    many, _, repeated = (owned.commit for owned in commits())
    assert isinstance(many, NamedCommit)
    for found in (replayed, loaded):
        assert found.find("", "stream-1", 7)[0] == NamedCommit(7, 9, 9, [], many.names)
        assert found.find("", "stream-1", 8)[0] == repeated


def test_the_names_are_told_as_the_document_says() -> None:
    def name(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    files = sorted(f"{name(OTHER_STAGE)}-{name(part)}.part" for part in ("2-0", "1-0"))
    repeated = commits()[2].commit
    assert isinstance(repeated, NamedCommit)
    assert repeated.names == [
        checksum(f"{TOPIC}\n{name(STAGE)}-{name(ONLY_PART)}.part".encode()),
        checksum("\n".join(["", *files]).encode()),
    ]
    assert repeated.parts == (0xFE00).to_bytes(8, "little") + (0xED).to_bytes(8, "little")


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)
