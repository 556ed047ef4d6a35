"""Which log this is: made once, kept in its data directory, and named in its cold directory and its backups.

A restored log is another log, because the first one may still run; it knows which one it was restored from.
"""

import os

import msgspec

from topics.storage.fileheader import checksum
from topics.storage.filesystem import Filesystem, read_file, write_file_atomically

IDENTITY = ".topics.identity"


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """`restored_from`: the identity of the log whose backup this one was made from, if it is known."""

    identity: str
    restored_from: str = ""

    @property
    def mark(self) -> int:
        """What segments in the cold directory carry: enough to tell one log's files from another's."""
        return int(self.identity[:8], 16) or 1


_decoder = msgspec.json.Decoder(Identity)
_DIGITS = 32


def with_checksum(text: bytes) -> bytes:
    """A line, and its checksum on the next: an identity in which a digit has rotted must not be believed."""
    return b"%s\n%016x\n" % (text, checksum(text))


def without_checksum(content: bytes) -> bytes:
    """The line; nothing where its checksum does not fit."""
    text = content.partition(b"\n")[0]
    return text if content == with_checksum(text) else b""


def encode(identity: Identity) -> bytes:
    return with_checksum(msgspec.json.encode(identity))


def decode(content: bytes) -> Identity | None:
    """None where these bytes are no identity."""
    try:
        found = _decoder.decode(without_checksum(content))
    except ValueError:
        return None
    return found if is_identity(found.identity) else None


def is_identity(text: str) -> bool:
    return len(text) == _DIGITS and not set(text) - set("0123456789abcdef")


def read_identity(fs: Filesystem, directory: str) -> Identity | None:
    """None where there is none, or none that can be read: a log lives without it, and gets another."""
    path = os.path.join(directory, IDENTITY)
    return decode(read_file(fs, path)) if fs.exists(path) else None


def write_identity(fs: Filesystem, directory: str, identity: Identity) -> Identity:
    write_file_atomically(fs, directory, IDENTITY, [encode(identity)])
    return identity
