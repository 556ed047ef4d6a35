"""How far a single append has to walk: the files it enters, and how often it changes room on the way.

A room is the folder a file lies in. Counted is the usual case: a small plain record for a topic that exists,
on a connection whose client has sent the same head before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

import topics
from tests.http.streaming import RunningApp
from tests.support import raw_request
from topics.values import accelerator

MOST_FILES = 15
MOST_CHANGES = 6
# What the accelerator does in one call takes several of our files where Python does it.
MOST_FILES_IN_PYTHON = 20
MOST_CHANGES_IN_PYTHON = 16
# Timers of the server may strike while we look: the shortest of some walks is the append alone.
WALKS = 20

SOURCE = f"{Path(topics.__file__).parent}/"
APPEND = raw_request("POST", "/v0/topics/t", b'{"records":[{"data":{"a":1}}]}')


@pytest.fixture
def app(tmp_path: Path, both_ways: None) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path / "data")
    assert app.call("PUT", "/v0/topics/t", {}).json["config"]["durability"] == "disk"
    yield app
    app.stop()


def walk(app: RunningApp) -> list[str]:
    """The files of one append, in the order in which they are first entered, until the server rests."""
    wire = app.wire()
    for _ in range(5):
        wire.send(APPEND)
        assert wire.read().status == 200
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(SOURCE):
            entered[path.removeprefix(SOURCE)] = None

    app.inside(lambda: sys.setprofile(note))
    wire.send(APPEND)
    assert wire.read().status == 200
    app.inside(lambda: sys.setprofile(None))
    wire.close()
    return list(entered)


def test_a_single_append_enters_few_files_and_changes_room_seldom(app: RunningApp) -> None:
    files = min((walk(app) for _ in range(WALKS)), key=len)
    rooms = [str(Path(file).parent) for file in files]
    changes = sum(room != following for room, following in pairwise(rooms))
    way = "\n".join(files)
    assert {"http", "flow", "log", "storage"} <= {file.partition("/")[0] for file in files}, way
    in_python = accelerator.native is None
    assert len(files) <= (MOST_FILES_IN_PYTHON if in_python else MOST_FILES), way
    assert changes <= (MOST_CHANGES_IN_PYTHON if in_python else MOST_CHANGES), way
