"""Files as another version of the program would write them: only the format in their header differs."""

import struct
from pathlib import Path

from topics.storage.fileheader import FORMAT, checksum

OTHER_FORMAT = FORMAT - 1


def in_other_format(content: bytes, *covered: bytes) -> bytes:
    """Return the content with another format in its header. `covered`: what else is under the checksum."""
    fixed = content[:8] + struct.pack("<I", OTHER_FORMAT) + content[12:24]
    return fixed + struct.pack("<Q", checksum(fixed, *covered)) + content[32:]


def give_other_format(path: Path) -> None:
    """Change a journal file or a segment."""
    path.write_bytes(in_other_format(path.read_bytes()))
