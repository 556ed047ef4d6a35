"""Files as disks, power failures and other versions of the program leave them."""

import os
import struct
from pathlib import Path

from topics.storage.fileheader import FORMAT, checksum

OTHER_FORMAT = FORMAT - 1


def flip(path: Path, offset: int) -> None:
    """Damage one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def in_other_format(content: bytes, *covered: bytes) -> bytes:
    """Return the content with another format in its header. The checksum includes `covered`."""
    fixed = content[:8] + struct.pack("<I", OTHER_FORMAT) + content[12:24]
    return fixed + struct.pack("<Q", checksum(fixed, *covered)) + content[32:]


def give_other_format(path: Path) -> None:
    """Change a journal file or a segment."""
    path.write_bytes(in_other_format(path.read_bytes()))


def pictured(*directories: Path) -> dict[str, bytes]:
    """Return every file of these directories with its content, to compare it later."""
    paths = (path for directory in directories for path in [directory, *sorted(directory.rglob("*"))])
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths if path.exists()}
