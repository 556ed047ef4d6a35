"""What a directory holds, to be compared with what it holds later."""

from pathlib import Path


def pictured(*directories: Path) -> dict[str, bytes]:
    """Every file there, and what is in it."""
    paths = (path for directory in directories for path in [directory, *sorted(directory.rglob("*"))])
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths if path.exists()}
