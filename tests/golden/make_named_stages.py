"""Writes the golden files of commits whose parts are known, which came after those of make_owned_stages.py.

PYTHONPATH=src:. python tests/golden/make_named_stages.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from tests.golden.make import PART
from tests.golden.make_owned_stages import TS, write_files
from topics.flow.stages.identities import NamedCommit, OwnedCommit, StageRange, pack_digests
from topics.flow.stages.spool import names_digest, part_path, stage_key
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal

GOLDEN = Path(__file__).parent / "named_stages"
STAGE, ONLY_PART = PART
OTHER_STAGE = "of another driver"
TOPIC = "orders"


def names(stage: str, *parts: str, topic: str | None = None) -> int:
    return names_digest([part_path("", stage_key("", stage), part) for part in parts], topic)


def commits() -> list[OwnedCommit]:
    """One that was repeated under other names, and one with many parts that is not the last one any more."""
    written = [StageRange("orders", 5, 6, 2, 1)]
    first, again = names(STAGE, ONLY_PART, topic=TOPIC), names(OTHER_STAGE, "1-0", "2-0")
    many = names(STAGE, *map(str, range(9)))
    made = [
        NamedCommit(7, 9, 9, [], [many], pack_digests([1] * 9)),
        NamedCommit(8, 2, 0xFEED, written, [first], pack_digests([0xFEED])),
        NamedCommit(8, 2, 0xFEED, written, [first, again], pack_digests([0xFE00, 0xED])),
    ]
    return [OwnedCommit("", "stream-1", commit, []) for commit in made]


def write_journal(fs: Filesystem, directory: str) -> None:
    journal = Journal(fs, directory, [], 0)
    for commit in commits():
        fact = FrameDraft(Kind.OWNED_STAGE, msgspec.msgpack.encode(commit), ts=TS)
        journal.write([FrameDraft(Kind.GROUP, [fact], ts=TS)])
    journal.close()


def write_all(root: Path) -> None:
    write_files(root, write_journal, commits())


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)
