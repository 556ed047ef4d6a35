"""`topics write`: what arguments and lines become, and where a mistake ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command import Outcome, topics
from tests.support import ServerProcess
from topics.cli.remote import write

Run = Callable[..., Outcome]


@pytest.fixture
def run(server: ServerProcess) -> Run:
    return lambda *arguments, given="": topics(*arguments, given=given, TOPICS_URL=server.url)


def data_of(server: ServerProcess, topic: str) -> list[object]:
    return [record["data"] for record in server.post(f"/v0/topics/{topic}/diff", {})["records"]]


def test_arguments_are_values(server: ServerProcess, run: Run) -> None:
    done = run("write", "args", '{"a": [1, null]}', "2", '"text"', "--tag", "user:1", "--node", "web")
    assert done.code == 0
    (row,) = done.rows
    assert {name: row[name] for name in ("topic", "first_seq", "last_seq", "count", "created")} == {
        "topic": "args",
        "first_seq": 1,
        "last_seq": 3,
        "count": 3,
        "created": True,
    }
    records = server.post("/v0/topics/args/diff", {"include_tags": True})["records"]
    assert [record["data"] for record in records] == [{"a": [1, None]}, 2, "text"]
    assert {(record["$tag"], record["$node"]) for record in records} == {("user:1", "web")}


def test_numbers_stay_as_they_were_written(run: Run) -> None:
    run("write", "exact", "1.50", "123456789012345678901234567890", "1e2", "1e999")
    assert run("read", "exact", "--format", "data").output.split() == [
        "1.50",
        "123456789012345678901234567890",
        "1e2",
        "1e999",
    ]


def test_lines_of_standard_input(server: ServerProcess, run: Run) -> None:
    assert run("write", "lines", "-", given='1\n\n  \n"zwei"\r\n[3]').code == 0
    assert data_of(server, "lines") == [1, "zwei", [3]]
    assert run("write", "lines", "--input", "lines", given="{not json\n\n eins \n").code == 0
    assert data_of(server, "lines")[3:] == ["{not json", " eins "]


def test_a_mistake_names_its_line_and_ends_it(server: ServerProcess, run: Run) -> None:
    done = run("write", "broken", given="1\n\n2\nNaN\n3\n")
    assert done.code == 2
    assert "line 4 is no JSON" in done.errors
    assert "--input lines" in done.errors
    assert done.rows[0]["count"] == 2
    assert data_of(server, "broken") == [1, 2]
    wrong = run("write", "broken", "5", "nope")
    assert (wrong.code, "argument 2" in wrong.errors) == (2, True)
    assert data_of(server, "broken") == [1, 2, 5]
    assert run("write", "broken", given="\n\n").code == 2
    assert run("write", "broken", "--input", "lines", "\udcff").code == 2


def test_rows_of_a_table(server: ServerProcess, run: Run) -> None:
    assert run("write", "table", "--input", "csv", given='sku,qty\nA,1\n\n"B, large\nand red",2\n').code == 0
    assert data_of(server, "table") == [{"sku": "A", "qty": "1"}, {"sku": "B, large\nand red", "qty": "2"}]
    short = run("write", "table", "--input", "csv", given="sku,qty\nC,3\nD\nE,5\n")
    assert (short.code, "line 3 has 1 cell" in short.errors, "--input lines" in short.errors) == (
        2,
        True,
        True,
    )
    assert data_of(server, "table")[2:] == [{"sku": "C", "qty": "3"}]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("a,a,b", 'columns 1 and 2 are both called "a"'),
        ("b,a,c,a", 'columns 2 and 4 are both called "a"'),
        ("a,,", 'columns 2 and 3 are both called ""'),
        ('"a b","a b"', 'columns 1 and 2 are both called "a b"'),
    ],
)
def test_columns_of_one_name_are_a_mistake(server: ServerProcess, run: Run, header: str, told: str) -> None:
    """An object could hold only the last of them. Nothing is written, and no topic made."""
    cells = ",".join("x" * (header.count(",") + 1))
    piped = run("write", "twins", "--input", "csv", given=f"{header}\n{cells}\n")
    assert (piped.code, piped.output, piped.errors) == (2, "", f"topics: line 1: {told}\n")
    typed = run("queue", "push", "twins", header, cells, "--input", "csv")
    assert (typed.code, typed.output, typed.errors) == (2, "", f"topics: argument 1: {told}\n")
    assert run("describe", "twins").code == 1


def test_one_column_without_a_name_and_names_in_other_letters(server: ServerProcess, run: Run) -> None:
    assert run("write", "nameless", "--input", "csv", given="a,A,\n1,2,3\n").code == 0
    assert data_of(server, "nameless") == [{"a": "1", "A": "2", "": "3"}]


def test_more_than_one_request_takes(server: ServerProcess, run: Run) -> None:
    done = run("write", "many", given="".join(f"{number}\n" for number in range(2500)))
    assert (done.rows[0]["count"], done.rows[0]["last_seq"]) == (2500, 2500)
    wide = run("write", "wide", given="".join(f'"{"x" * 600_000}"\n' for _ in range(3)))
    assert wide.rows[0]["count"] == 3


def test_what_a_server_refuses(server: ServerProcess, run: Run) -> None:
    refused = run("write", "large", f'"{"x" * 1_100_000}"')
    assert (refused.code, "record_too_large" in refused.errors) == (1, True)
    invalid = run("write", "no/name", "1")
    assert (invalid.code, "invalid_request" in invalid.errors) == (2, True)


def test_an_interrupted_write_says_how_to_go_on(server: ServerProcess) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "topics", "write", "part", "--tag", "a b", "--json", "--wait", "60"],
        env={**os.environ, "TOPICS_URL": server.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"1\n\n2\n3")
    process.stdin.flush()
    # The topic comes into being with its first record; the last line has not come to its end.
    server.put("/v0/topics/part", {})
    while len(data_of(server, "part")) < 2:
        pass
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b'"first_seq":1,"last_seq":2,"count":2' in output
    assert errors.decode().splitlines() == [
        "topics: interrupted: 2 records written",
        "topics: go on behind line 3 with: topics write part --tag 'a b' --json",
    ]


def test_what_is_left_of_the_arguments(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is a request here, and Ctrl-C comes with the third."""
    send = write.write
    sent: list[Any] = []

    def interrupted(client: Any, topic: str, body: Any) -> Any:
        sent.append(body)
        if len(sent) == 3:
            raise KeyboardInterrupt
        return send(client, topic, body)

    monkeypatch.setattr(write, "MOST_RECORDS", 1)
    monkeypatch.setattr(write, "write", interrupted)
    done = run("queue", "push", "left", "sku,qty", "A,1", "", "B,2", "C,3", "D 4,4", "--input", "csv")
    assert done.code == 130
    assert "topics queue push left sku,qty C,3 'D 4,4' --input csv" in done.errors
