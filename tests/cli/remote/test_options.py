"""Which server a verb asks, with which key, and how long it waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.cli.command import refused, topics
from tests.support import ServerProcess, free_port
from topics.cli.remote import client
from topics.cli.remote.options import moment

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


def test_the_key_of_a_profile_goes_to_no_other_address(home: Path, locked: ServerProcess) -> None:
    there = {"HOME": str(home)}
    # The same server by another name: to the command, another address.
    elsewhere = locked.url.replace("127.0.0.1", "localhost")
    for url, profiles in ((elsewhere, 1), (locked.url, 0), (locked.url + "/", 0)):
        assert topics("list", "--profile", "ours", "--url", url, **there).code == profiles
        assert topics("list", "--url", url, TOPICS_PROFILE="ours", **there).code == 1
    key = ("--key-file", home / "key")
    assert topics("list", "--profile", "ours", "--url", elsewhere, *key, **there).code == 0
    # Where nothing is looked up in it, it need not be there.
    assert topics("list", "--url", elsewhere, *key, TOPICS_PROFILE="none", **there).code == 0


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
        silent = topics("list", heard_within_s=client.HEARD_WITHIN_S, TOPICS_URL=url)
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


class _Page(BaseHTTPRequestHandler):
    """What other programs answer, and proxies without a server behind them."""

    status: ClassVar[int] = 404

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"<html>\n<h1>Sorry</h1>\n</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("status", [404, 502])
def test_another_program_is_no_server(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Page, "status", status)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        told = topics("list", TOPICS_URL=f"http://127.0.0.1:{other.server_port}")
        other.shutdown()
    assert (told.code, told.errors.count("\n")) == (4, 1), told.errors
    assert f"what answers there is none (status {status})" in told.errors


def test_a_folder_in_which_no_server_lives(locked: ServerProcess) -> None:
    assert topics("list", TOPICS_URL=f"{locked.url}/v0", TOPICS_API_KEY=SECRET).code == 4


class _Proxy(_Page):
    """Does not reach its server at first, as while that starts again."""

    status: ClassVar[int] = 502
    failures: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        if self.path.startswith("/v0/topics") and not self.failures:
            self.failures.append(self.status)
            super().do_GET()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"topics": []}')


def test_a_proxy_that_does_not_get_through_is_waited_out() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        listed = topics("list", TOPICS_URL=f"http://127.0.0.1:{proxy.server_port}")
        proxy.shutdown()
    assert (listed.code, _Proxy.failures) == (0, [502]), listed.errors


@pytest.mark.parametrize("flag", ["--url", "--key-file", "--profile"])
def test_an_empty_flag_is_no_default(flag: str, home: Path) -> None:
    refused("list", flag, "", HOME=str(home))


@pytest.mark.parametrize("command", ["compact --purge", "backup backups", "pipeline run it.toml"])
def test_an_empty_address_is_no_default(
    command: str, locked: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was meant for one server must not be done to another."""
    monkeypatch.chdir(tmp_path)
    Path("it.toml").write_text('[pipeline.it]\nkind = "load"\nfiles = ["x.json"]\ninto = "t"\n')
    there = {"TOPICS_URL": locked.url, "TOPICS_API_KEY": SECRET}
    assert refused(*command.split(), "--url", "", **there) == "--url is empty"


def test_an_empty_format_is_none() -> None:
    assert "there is no format ''" in refused("read", "t", "--format", "")


def test_flags_may_stand_anywhere(locked: ServerProcess) -> None:
    there = {"TOPICS_URL": locked.url, "TOPICS_API_KEY": SECRET}
    done = topics("write", "mixed", "--tag", "t", "1", "--input=lines", "2", "--", "--tag", "-3", **there)
    assert (done.code, done.errors) == (0, "")
    assert topics("read", "mixed", "--format", "{tag}{data}", **there).output.split() == [
        "t1",
        "t2",
        "t--tag",
        "t-3",
    ]
    assert topics("config", "mixed", "--json", "cap_records=3", **there).json["cap_records"] == 3
    assert topics("read", "-n", "1", "mixed", "--from", "3", "mixed", **there).code == 0
    assert "expected one argument" in refused("write", "mixed", "--tag", **there)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "0001-01-01T00:00:00+14:00", "1960-01-01T00:00Z", "99999999d"]
)
def test_a_time_before_all_records_is_their_beginning(text: str) -> None:
    assert moment(text) == 0


def test_times() -> None:
    assert moment("2026-07-01T12:00:00Z") == moment("2026-07-01T14:00:00+02:00") == 1_782_907_200_000
    assert moment("9999-12-31T23:59:59-12:00") > moment("9999-12-30")


@pytest.mark.parametrize("command", ["read", "describe", "drop --yes", "queue claim", "config"])
def test_an_empty_name_is_a_mistake(command: str, locked: ServerProcess) -> None:
    """A variable of a script that is not set."""
    there = {"TOPICS_URL": locked.url, "TOPICS_API_KEY": SECRET}
    assert "the name of the topic is empty" in refused(*command.split(), "", **there)


@pytest.mark.parametrize("command", [("add", "", "a", "b"), ("drop", "", "--yes")])
def test_an_empty_name_of_a_router_is_a_mistake(command: tuple[str, ...], locked: ServerProcess) -> None:
    there = {"TOPICS_URL": locked.url, "TOPICS_API_KEY": SECRET}
    assert refused("route", *command, **there) == "the name of the router is empty"


def test_mistyped() -> None:
    assert "did you mean claim?" in refused("queue", "clam", "x")
    assert "did you mean zsh?" in refused("completion", "zhs")
    assert "there are json, lines, csv" in refused("write", "x", "--input", "text")
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
