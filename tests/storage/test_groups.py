"""A group of frames is read back as its members, all of them or none."""

from pathlib import Path

from tests.storage.support import FS
from topics.storage.frame import Frame, FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.journal_reader import Damage, JournalReader


def write_group(directory: Path) -> tuple[Journal, int]:
    """A frame, a group of three, another frame; returns where the group begins."""
    journal = Journal(FS, str(directory), [], 0)
    journal.write([FrameDraft(Kind.CLOCK, b"first")])
    begin = journal.position
    members = [
        FrameDraft(Kind.APPEND, b"x" * 5000, topic_id=3, first_seq=7, count=2, ts=11, flags=1),
        FrameDraft(Kind.DELETE, b"", topic_id=4),
        FrameDraft(Kind.STAGE, b"fact"),
    ]
    journal.write([FrameDraft(Kind.GROUP, members)])
    journal.write([FrameDraft(Kind.CLOCK, b"last")])
    journal.close()
    return journal, begin


def read(directory: Path, proven: int = 0) -> list[Frame | Damage]:
    return list(JournalReader(FS, str(directory), start=0, proven=proven).frames())


def kinds(items: list[Frame | Damage]) -> list[object]:
    return [item.kind if isinstance(item, Frame) else "damage" for item in items]


def test_members_come_in_order_and_lie_where_the_group_lies(tmp_path: Path) -> None:
    _, begin = write_group(tmp_path)
    items = read(tmp_path)
    assert kinds(items) == [Kind.CLOCK, Kind.APPEND, Kind.DELETE, Kind.STAGE, Kind.CLOCK]
    append = items[1]
    assert isinstance(append, Frame)
    assert (append.topic_id, append.first_seq, append.count, append.ts, append.flags) == (3, 7, 2, 11, 1)
    assert bytes(append.payload) == b"x" * 5000
    assert {item.position for item in items[1:4]} == {begin}


def test_a_group_that_rotted_is_one_damage(tmp_path: Path) -> None:
    journal, begin = write_group(tmp_path)
    path = next(tmp_path.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[begin + 3000] ^= 1
    path.write_bytes(data)
    items = read(tmp_path, proven=journal.position)
    assert kinds(items) == [Kind.CLOCK, "damage", Kind.CLOCK]
    damage = items[1]
    assert isinstance(damage, Damage)
    assert damage.header is not None
    assert damage.header.kind == Kind.GROUP
