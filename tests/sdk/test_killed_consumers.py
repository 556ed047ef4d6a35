"""Consumers killed at any line, with each cursor: nothing is left out, only what was under way repeated."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.sdk.test_reading import fill
from tests.support.sources import ROOT
from topics import Topics
from topics.testing import TopicsServer

RECORDS, LOST = 5, 2
KINDS = ("file", "sqlite", "server", "own")


def killed(
    shared: TopicsServer, client: Topics, name: str, folder: Path, kind: str, surface: str, step: int
) -> int:
    fill(client, name, RECORDS)
    shared.lose(name, LOST)
    # Which lines these are differs between the kinds, and is the same every time.
    first = 1 + zlib.crc32(f"{kind}{surface}".encode()) % step
    command = [
        sys.executable,
        "-m",
        "tests.sdk.killed_consumer",
        shared.url,
        name,
        str(folder),
        kind,
        surface,
    ]
    done = subprocess.run(
        [*command, str(first), str(step)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("kind", "surface"),
    [(kind, "blocking") for kind in KINDS] + [("file", "asyncio"), ("server", "asyncio")],
)
def test_killed_at_some_lines(
    shared: TopicsServer, client: Topics, name: str, folder: Path, kind: str, surface: str
) -> None:
    assert killed(shared, client, name, folder, kind, surface, 151) >= 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_line(
    shared: TopicsServer, client: Topics, name: str, folder: Path, kind: str, surface: str
) -> None:
    assert killed(shared, client, name, folder, kind, surface, 1) >= 300
