"""Which log this is: made once, kept in its data directory, and named in its cold directory and its backups.

A restored log is another log, because the first one may still run; it knows which one it was restored from.
"""

import os
import re
from typing import TypeVar

import msgspec

from topics.storage.fileheader import checksum
from topics.storage.filesystem import Filesystem, read_file, write_file_atomically

IDENTITY = ".topics.identity"
OWNER = ".topics.owner"
_IDENTITY = re.compile("[0-9a-f]{32}")


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """`restored_from`: the identity of the log whose backup this one was made from, if it is known."""

    identity: str
    restored_from: str = ""

    @property
    def mark(self) -> int:
        """What segments in the cold directory carry: enough to tell one log's files from another's."""
        return int(self.identity[:8], 16) or 1


class Owner(msgspec.Struct, frozen=True):
    """What a cold directory says about itself: whose it is, and where that log was when it said so."""

    identity: str
    data_dir: str


Mark = TypeVar("Mark", Identity, Owner)


def encode(mark: Identity | Owner) -> bytes:
    """Return a line of JSON, and its checksum on the next: a rotten identity must not be believed."""
    text = msgspec.json.encode(mark)
    return b"%s\n%016x\n" % (text, checksum(text))


def decode(content: bytes, kind: type[Mark]) -> Mark | None:
    """Return what `encode` was given; None if the content is something else."""
    text = content.partition(b"\n")[0]
    if content != b"%s\n%016x\n" % (text, checksum(text)):
        return None
    try:
        found = msgspec.json.decode(text, type=kind)
    except ValueError:
        return None
    return found if _IDENTITY.fullmatch(found.identity) else None


def read_identity(fs: Filesystem, directory: str) -> Identity | None:
    """None where there is none, or none that can be read: a log lives without it, and gets another."""
    return _read(fs, directory, IDENTITY, Identity)


def read_owner(fs: Filesystem, directory: str) -> Owner | None:
    """None where there is none, or none that can be read."""
    return _read(fs, directory, OWNER, Owner)


def _read(fs: Filesystem, directory: str, name: str, kind: type[Mark]) -> Mark | None:
    path = os.path.join(directory, name)
    return decode(read_file(fs, path), kind) if fs.exists(path) else None


def write_identity(fs: Filesystem, directory: str, identity: Identity) -> Identity:
    write_file_atomically(fs, directory, IDENTITY, [encode(identity)])
    return identity


def write_owner(fs: Filesystem, directory: str, owner: Owner) -> None:
    write_file_atomically(fs, directory, OWNER, [encode(owner)])
