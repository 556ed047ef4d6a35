"""The flags that say where the data is, and the settings for a directory that is opened without a server."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Any

from topics.cli.work import DEFAULT_URL
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
    """Sizes as the server has them."""
    settings = Settings.from_environment(os.environ)
    return replace(settings, data_dir=data_dir, cold_dir=cold_dir or settings.cold_dir)
