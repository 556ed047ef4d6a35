"""Opening a data directory without a server: the same engine, the same recovery, the same lock."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from topics.cli.work import DEFAULT_URL, UserMistake
from topics.log.seal.snapshot_state import decode
from topics.node.node import Node
from topics.storage import segment as segment_files
from topics.storage.directories import Directories
from topics.storage.filesystem import Filesystem, numbered_files
from topics.storage.snapshot import SnapshotStore
from topics.values.settings import Settings


def add_where(parser: argparse.ArgumentParser) -> Any:
    """A server that runs, or the directory of one that does not. More of the same choice may be added."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=f"a running server (TOPICS_URL, {DEFAULT_URL})")
    where.add_argument("--data-dir", help="a data directory without a running server")
    add_cold_dir(parser)
    return where


def add_cold_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cold-dir", help="the server's cold directory (TOPICS_COLD_DIR)")


def offline_settings(data_dir: str, cold_dir: str | None = None) -> Settings:
    """Sizes as the server has them; nothing that concerns the network."""
    settings = Settings.from_environment(os.environ)
    return replace(
        settings,
        host="127.0.0.1",
        port_file=None,
        api_keys="",
        tracing=False,
        data_dir=data_dir,
        cold_dir=cold_dir or settings.cold_dir,
    )


def require_data_dir(path: str) -> None:
    if not Path(path).is_dir():
        raise UserMistake(f"there is no directory {path}")
    if not Path(Directories(path).journal).is_dir():
        raise UserMistake(f"{path} is not a data directory: it has no journal")


def require_all_segments(settings: Settings) -> None:
    """Without its cold directory a data directory would open as if everything in there had been lost."""
    fs, dirs = Filesystem(), Directories(settings.data_dir)
    present = set()
    for directory in filter(None, (dirs.segments, settings.cold_dir)):
        present.update(numbered_files(fs, directory, segment_files.file_name))
    for body in SnapshotStore(fs, dirs.snapshots).newest().values():
        state = decode(body)
        for topic in () if state is None else state.topics:
            for run in topic.runs:
                if run.segment and run.segment not in present:
                    raise UserMistake(
                        f"segment {run.segment} of topic {topic.name} is missing; if there is a "
                        "cold directory, name it with --cold-dir, otherwise see what topics check says"
                    )


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Node]:
    """The whole server but for its wire. What is open when this ends is closed cleanly."""
    node = Node(settings)
    node.recover()
    node.run()
    try:
        yield node
    finally:
        await node.close()
