"""Text and numbers as the command prints them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.cli.errors import clean, clean_json
from topics.cli.output import amount, counted


def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "data")
    for number in range(20):
        lab.write("t", number)
    lab.checkpoint(everything=True)
    lab.stop()
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "topics.cli.main", "check", str(tmp_path / "data")]
    environment = {**os.environ, "TERM": "xterm-256color"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=end, env=environment, timeout=60, check=True
    )
    os.close(end)
    shown = os.read(terminal, 65536)
    os.close(terminal)
    assert b"recovering" in shown
    assert done.stdout.decode().endswith("clean; 1 topic with 20 records\n")
    silent = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    assert silent.stderr == b""


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5120.0 GiB")]
)
def test_amounts(size: int, text: str) -> None:
    assert amount(size) == text


def test_counts() -> None:
    assert [counted(number, "file") for number in (0, 1, 1234)] == ["0 files", "1 file", "1,234 files"]


@pytest.mark.parametrize(
    "character", "\x07\x1b\x7f\x9b\xad\u061c\u180e\u200b\u202e\u2066\ufeff\ufff9\U000e0041"
)
def test_nothing_unseen_reaches_a_terminal(character: str) -> None:
    assert clean(f"a{character}b").isprintable()
    assert clean_json(character).isascii()
    assert json.loads(clean_json(f'"{character}"')) == character


def test_letters_stay() -> None:
    assert clean("héé€😀漢字") == clean_json("héé€😀漢字") == "héé€😀漢字"
