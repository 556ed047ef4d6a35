"""What a person sees: tables, colours, questions. Nothing that comes out of data moves the cursor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import topics
from tests.cli.terminal import Terminal
from tests.support import ServerProcess
from topics.cli.remote.listing import _LIST

RED = "\x1b[1;31m"


def test_records_and_losses_as_lines(server: ServerProcess) -> None:
    server.put("/v0/topics/shown", {"cap_records": 2})
    nasty = "\x1b[2J\u009b31m\u202egone\nnext"
    records = [{"data": 0}, {"data": 0}, {"data": 0}, {"data": {"text": nasty}, "tag": nasty}]
    server.post("/v0/topics/shown", {"records": records})
    with Terminal("read", "shown", url=server.url) as terminal:
        assert terminal.ended() == 0
        assert "shown: lost 1-2 (cap)" in terminal.shown
        assert RED + "shown: lost" in terminal.raw
        (last,) = (line for line in terminal.shown.splitlines() if "gone" in line)
        assert r"\x1b[2J\x9b31m\u202egone\nnext" in last
        # The time is dim, and nothing behind it.
        assert re.search(r"\x1b\[2m[^\x1b]*Z\x1b\[0m", terminal.raw)
        assert "\x1b[2J" not in terminal.raw
        assert "\u202e" not in terminal.raw
    with Terminal("read", "shown", "--format", "{tag} {data[text]}", url=server.url, NO_COLOR="1") as plain:
        assert plain.ended() == 0
        assert r"\x1b[2J\x9b31m\u202egone\nnext" in plain.shown
        assert "shown: lost 1-2 (cap)" in plain.shown
    with Terminal("read", "shown", url=server.url, NO_COLOR="1") as human:
        assert human.ended() == 0
    with Terminal("list", "shown", url=server.url, NO_COLOR="1") as table:
        assert table.ended() == 0
    # Neither colours nor anything else that only a terminal understands.
    assert "\x1b" not in plain.raw + human.raw + table.raw
    with Terminal("read", "shown", "--json", url=server.url) as machine:
        assert machine.ended() == 0
        assert '"lost":{"gap_from":1,"gap_to":2,"reason":"cap"}' in machine.shown
        # Other escapes, the same value.
        last = json.loads(machine.shown.splitlines()[-1])
        assert (last["tag"], last["data"]["text"]) == (nasty, nasty)
        assert not {"\u202e", "\u009b", "\x1b"} & set(machine.raw)


def test_a_table(server: ServerProcess) -> None:
    server.post("/v0/topics/table-one", {"records": [{"data": 1}] * 1234})
    with Terminal("list", "table-", url=server.url) as terminal:
        assert terminal.ended() == 0
        header, row = terminal.shown.strip().splitlines()
        assert header.split()[:3] == ["topic", "type", "count"]
        assert row.split()[0] == "table-one"
        assert "1,234" in row


@pytest.mark.parametrize(("columns", "left_out"), [(80, "durability"), (40, "head_seq")])
def test_a_table_on_a_narrow_terminal(server: ServerProcess, columns: int, left_out: str) -> None:
    """Names of columns and numbers stay whole; what has no room is left out, and that is said."""
    name = f"narrow-{columns}-" + "x" * 60
    server.put(f"/v0/topics/{name}", {"cap_records": 1})
    server.post(f"/v0/topics/{name}", {"records": [{"data": 1}] * 1234})
    with Terminal("list", f"narrow-{columns}", url=server.url, COLUMNS=str(columns)) as terminal:
        assert terminal.ended() == 0
        header, *lines = terminal.shown.strip().splitlines()
    assert header.split()[:4] == ["topic", "type", "count", "lost"]
    assert header.split() == [word for word in header.split() if word in _LIST]
    assert lines[0].split()[1:4] == ["log", "1", "1,233"]
    assert "".join(line.split()[0] for line in lines if "x" in line) == name
    assert left_out in " ".join(lines[-2:])
    assert max(map(len, [header, *lines[:-1]])) <= columns


def test_times_and_names_of_a_description(server: ServerProcess) -> None:
    server.post("/v0/topics/described", {"records": [{"data": 1}]})
    with Terminal("describe", "described", url=server.url, COLUMNS="40") as terminal:
        assert terminal.ended() == 0
    assert re.search(r"last_write_ts +20\d\d-\d\d-\d\dT\d", terminal.shown)
    assert "…" not in terminal.shown


def test_dropping_asks_for_the_name(server: ServerProcess) -> None:
    server.post("/v0/topics/precious", {"records": [{"data": 1}] * 3})
    with Terminal("drop", "precious", url=server.url) as terminal:
        terminal.await_text("type its name")
        assert "3 records" in terminal.shown
        terminal.type("y\n")
        assert terminal.ended() == 1
    assert server.get("/v0/topics/precious")["count"] == 3
    with Terminal("drop", "precious", url=server.url) as terminal:
        terminal.await_text("type its name")
        terminal.type("precious\n")
        assert terminal.ended() == 0
    assert topics("describe", "precious", TOPICS_URL=server.url).code == 1


def test_records_that_are_typed(server: ServerProcess) -> None:
    with Terminal("write", "typed", url=server.url) as terminal:
        terminal.await_text("Ctrl-D ends them")
        terminal.type("1\n\x04")
        assert terminal.ended() == 0
        assert "1 record in typed" in terminal.shown
        assert "writing" not in terminal.shown


def test_no_answer_is_no(server: ServerProcess) -> None:
    server.post("/v0/topics/unanswered", {"records": [{"data": 1}]})
    with Terminal("drop", "unanswered", url=server.url) as terminal:
        terminal.await_text("type its name")
        terminal.type("\x04")
        assert terminal.ended() == 1
        assert terminal.shown.splitlines()[-1] == "topics: nothing was dropped"


def test_deleting_shows_what_it_would_do(server: ServerProcess) -> None:
    server.post("/v0/topics/trimmed", {"records": [{"data": 1}] * 3})
    with Terminal("delete", "trimmed", "--before-seq", "3", url=server.url) as terminal:
        terminal.await_text("delete them?")
        assert "this removes 2 records of trimmed" in terminal.shown
        terminal.type("\n")
        assert terminal.ended() == 1
    assert server.get("/v0/topics/trimmed")["count"] == 3
    for before, answer in (("2", "y\n"), ("3", "Yes\n")):
        with Terminal("delete", "trimmed", "--before-seq", before, url=server.url) as terminal:
            terminal.await_text("delete them?")
            terminal.type(answer)
            assert terminal.ended() == 0
    assert server.get("/v0/topics/trimmed")["count"] == 1


def test_ctrl_c(server: ServerProcess) -> None:
    server.post("/v0/topics/watched", {"records": [{"data": "first"}]})
    with Terminal("tail", "watched", url=server.url) as terminal:
        terminal.await_text('"first"')
        terminal.interrupt()
        assert terminal.ended() == 130
        assert "topics tail 'watched@1~" in terminal.shown
        assert "Traceback" not in terminal.shown


def test_status_for_a_person(server: ServerProcess) -> None:
    with Terminal("status", url=server.url) as terminal:
        code = terminal.ended()
        assert code in (0, 1)
        assert "writes     on" in terminal.shown
        assert ("nothing needs attention" in terminal.shown) == (code == 0)


def test_a_file_is_written_with_a_bar(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    file.write_text("".join(f"{number}\n" for number in range(20_000)))
    with Terminal("write", "numbers", url=server.url, given=file) as terminal:
        assert terminal.ended() == 0
        assert "writing" in terminal.shown
        assert "20,000 records in numbers, seqs 1 to 20,000" in terminal.shown
