"""`topics write`: what arguments and lines become, and where a mistake ends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Outcome, topics
from tests.support import ServerProcess

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
