"""What disks and power failures do to files."""

import os
from pathlib import Path


def flip(path: Path, offset: int) -> None:
    """Damage one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)
