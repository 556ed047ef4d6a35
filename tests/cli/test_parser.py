"""Arguments are text, in UTF-8: what is none is a mistake, whichever argument of whichever verb it is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.cli.test_main import started
from tests.support import ServerProcess
from topics.cli.main import VERBS, parser_of
from topics.cli.parser import _parsers, any_bytes

# As Python has a byte that is no text.
BAD = "\udcff"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("read", BAD), 'argument TOPIC: "\\xff" is no UTF-8'),
        (("write", "t", "--tag", BAD, "1"), 'argument --tag: "\\xff" is no UTF-8'),
        (("write", "t", f"--node=a{BAD}", "1"), 'argument --node: "a\\xff" is no UTF-8'),
        (("cursors", "t", "known", BAD), "argument CONSUMER: "),
        (("create", "t", f"dead_letter=ü{BAD}"), 'argument name=value: "dead_letter=ü\\xff" is no UTF-8'),
        (("queue", "nack", "t", "1", "--error", BAD), "argument --error: "),
        (("route", "add", BAD, "a", "b"), "argument NAME: "),
        (("compact", "--purge", "--topic", BAD), "argument --topic: "),
        (("restore", "a", "b", "--seq", f"{BAD}=1"), "argument --seq: "),
        (("list", "--url", f"http://{BAD}"), "argument --url: "),
    ],
)
def test_what_is_no_text_is_a_mistake(command: tuple[str, ...], told: str) -> None:
    """Nobody is asked: there is no server here."""
    assert refused(*command, TOPICS_URL="http://127.0.0.1:1").startswith(told)


def test_as_a_shell_passes_them(server: ServerProcess) -> None:
    done = started(r"topics read $'\xff'", TOPICS_URL=server.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'topics: argument TOPIC: "\\xff" is no UTF-8\n'


def test_a_locale_without_letters_has_the_same_arguments(server: ServerProcess) -> None:
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = started("topics write plain 1 --tag größe --wait 60", TOPICS_URL=server.url, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    page = server.post("/v0/topics/plain/diff", {"include_tags": True})
    assert [record["$tag"] for record in page["records"]] == ["größe"]


def test_a_path_may_have_any_bytes(tmp_path: Path, server: ServerProcess) -> None:
    key = tmp_path / f"key-{BAD}"
    key.write_text("tk_of-nobody")
    done = topics("list", "--key-file", key, TOPICS_URL=server.url)
    assert (done.code, done.errors) == (0, "")
    place = tmp_path / f"data-{BAD}"
    assert "there is no directory" in refused("check", place)
    assert "there are no backups" in refused("restore", place, tmp_path / "new")
    assert topics("config", "--data-dir", place, "--json").json["TOPICS_DATA_DIR"]["from"] == "flag"


def test_which_arguments_need_not_be_text() -> None:
    """Paths, and data, which is looked at line by line."""
    found = {
        (name, _called(action))
        for group in VERBS.values()
        for name in group
        for parser in _parsers(parser_of(name))
        if parser.prog.split()[1] == name
        for action in parser._actions
        if action.type in (any_bytes, Path) and action.option_strings != ["--key-file"]
    }
    settings = {(verb, flag) for verb in ("serve", "up", "config") for flag in ("--data-dir", "--config")}
    assert found == settings | {
        ("write", "data"),
        ("queue", "data"),
        ("up", "--pipelines"),
        ("pipeline", "file"),
        ("pipeline", "--skip"),
        ("pipeline", "--again"),
        ("backup", "directory"),
        ("backup", "--data-dir"),
        ("backup", "--cold-dir"),
        ("restore", "source"),
        ("restore", "data_dir"),
        ("restore", "--cold-dir"),
        ("check", "data_dir"),
        ("check", "--cold-dir"),
        ("compact", "--data-dir"),
        ("compact", "--cold-dir"),
    }


def _called(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else action.dest
