"""Which server a verb asks, with which key, and how long it waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.support import ServerProcess, free_port
from topics.cli.remote import server

SECRET = "tk_for-the-tests"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("locked"), TOPICS_API_KEYS=SECRET).start()
    yield process
    process.stop()


@pytest.fixture
def home(tmp_path: Path, locked: ServerProcess) -> Path:
    (tmp_path / ".config").mkdir()
    (tmp_path / "key").write_text(SECRET + "\n")
    (tmp_path / ".config" / "topics.toml").write_text(
        f'[profiles.ours]\nurl = "{locked.url}"\nkey_file = "../key"\n\n'
        f'[profiles.keyless]\nurl = "{locked.url}"\n\n[profiles.wrong]\nulr = "x"\n'
    )
    return tmp_path


def test_profiles(home: Path) -> None:
    there = {"HOME": str(home)}
    assert topics("list", "--profile", "ours", **there).code == 0
    assert topics("list", TOPICS_PROFILE="ours", **there).code == 0
    assert topics("list", "--profile", "ours", TOPICS_URL="http://127.0.0.1:1", **there).code == 0
    assert topics("list", "--profile", "keyless", **there).code == 1
    assert topics("list", "--profile", "keyless", TOPICS_API_KEY=SECRET, **there).code == 0
    assert topics("list", "--profile", "keyless", "--key-file", home / "key", **there).code == 0
    assert "did you mean ours?" in refused("list", "--profile", "our", **there)
    assert "did you mean url?" in refused("list", "--profile", "wrong", **there)


def test_keys(home: Path, locked: ServerProcess) -> None:
    url = locked.url
    denied = topics("list", "--url", url)
    assert (denied.code, "unauthorized" in denied.errors) == (1, True)
    assert topics("list", "--url", url, "--key-file", home / "key").code == 0
    assert topics("list", "--url", url, TOPICS_API_KEY=SECRET).code == 0
    wrong = topics("list", "--url", url, TOPICS_API_KEY="tk_other")
    assert (wrong.code, "tk_other" in wrong.errors) == (1, False)
    assert "cannot read the key" in refused("list", "--url", url, "--key-file", home / "none")
    (home / "empty").write_text("\n")
    assert "no key" in refused("list", "--url", url, "--key-file", home / "empty")


def test_nothing_there() -> None:
    gone = topics("list", TOPICS_URL=f"http://127.0.0.1:{free_port()}")
    assert (gone.code, gone.output, gone.errors.count("\n")) == (4, "", 1)
    waited = topics("list", "--wait", "0.2", TOPICS_URL=f"http://127.0.0.1:{free_port()}")
    assert waited.code == 4
    assert "not the address of a server" in refused("list", "--url", "ftp://x")
    assert "no number of seconds" in refused("list", "--wait", "soon")


def test_a_listener_that_says_nothing_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        silent = topics("list", heard_within_s=server.HEARD_WITHIN_S, TOPICS_URL=url)
    assert silent.code == 4


def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    late = ServerProcess(tmp_path, TOPICS_PORT=str(free_port()))
    url = f"http://127.0.0.1:{late.environment['TOPICS_PORT']}"
    starter = threading.Timer(0.5, late.launch)
    starter.start()
    try:
        assert topics("write", "late", "1", "--wait", "60", TOPICS_URL=url).code == 0
    finally:
        starter.join()
        late.stop()


def test_mistyped() -> None:
    assert "did you mean --json?" in refused("list", "--jsn")
    assert "did you mean describe?" in refused("descirbe")
    assert "flags come behind it" in refused("--json", "list")
    for verb in ("read", "queue", "route", "status"):
        assert "exit codes: 0 done, 1 refused" in " ".join(topics(verb, "--help").output.split())


def test_alone_it_prints_its_verbs() -> None:
    alone = topics()
    assert (alone.code, alone.errors) == (0, "")
    assert alone.output == topics("--help").output
    for verb in ("write", "tail", "cursors", "queue", "completion", "demo", "serve", "compact"):
        assert f"\n  {verb} " in alone.output
