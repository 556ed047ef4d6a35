"""What workers were told of lost jobs is read as it was written, and written as it was."""

import shutil
from pathlib import Path

from tests.flow.queues.lab import QueueLab
from tests.golden.make_queue_losses import GOLDEN, JOBS, LOSSES, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.log.lifecycle import add_recovered
from topics.log.seal.snapshot_state import decode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame
from topics.storage.journal_reader import JournalReader
from topics.storage.snapshot import SnapshotStore
from topics.values.config import TopicConfig


def lab_with_queues(directory: Path) -> QueueLab:
    lab = QueueLab(directory)
    for topic_id in (5, 6):
        config = TopicConfig(type="queue", leases_durable=True)
        add_recovered(lab.engine, topic_id, f"q{topic_id}", config, 1).rewind(99)
    return lab


def test_frames_and_snapshot_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    replayed, loaded = lab_with_queues(tmp_path / "replayed"), lab_with_queues(tmp_path / "loaded")
    for frame in reader.frames():
        assert isinstance(frame, Frame)
        [extension] = [one for one in replayed.queues.extensions if frame.kind in one.kinds]
        extension.replay(frame)
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    for extension in loaded.queues.extensions:
        extension.load(state.extensions[extension.name])
    for lab in (replayed, loaded):
        assert [queue.losses.dump() for queue in lab.queues.all()] == LOSSES
        assert lab.queue("q5").entries() == JOBS


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)
