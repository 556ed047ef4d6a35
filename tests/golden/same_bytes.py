"""Examples of a format are written today as they were then."""

from __future__ import annotations

from pathlib import Path


def assert_same_bytes(written: Path, golden: Path, *, files: int) -> None:
    """Each of the so many golden files was written again, byte for byte."""
    names = [path.relative_to(golden) for path in golden.rglob("*") if path.is_file()]
    assert len(names) == files
    for name in names:
        assert (written / name).read_bytes() == (golden / name).read_bytes(), name
