"""Bulk reads find exactly what every other read finds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.harness import Lab, records
from tests.support.damage import flip
from topics.log.read import scan as scanning
from topics.log.read.filter import parse_match
from topics.log.read.render import Shape
from topics.log.read.scan import Piece, Scan, ScanRequest

EVERYTHING = Shape(tags=True)


def start(lab: Lab, name: str = "a", **request: Any) -> Scan:
    return Scan(lab.engine, lab.topic(name), ScanRequest(**request))


def pieces(scan: Scan) -> list[Piece]:
    found = []
    while not scan.finished:
        piece = scan.step()
        if piece is not None:
            found.append(piece)
    return found


def rows(found: list[Piece]) -> list[dict[str, Any]]:
    return [row for piece in found for row in piece.batch.to_pylist()]


def seqs(found: list[Piece]) -> list[int]:
    return [row["seq"] for row in rows(found)]


def gaps(found: list[Piece]) -> list[tuple[int, int, str]]:
    return [
        (p.tombstone.gap_from, p.tombstone.gap_to, p.tombstone.reason)
        for p in found
        if p.tombstone is not None
    ]


def by_diff(lab: Lab, name: str, from_seq: int = 0, nodes: frozenset[str] | None = None) -> tuple[Any, Any]:
    """Rows and gaps of a reader who follows diff until it is caught up."""
    found: list[dict[str, Any]] = []
    announced = []
    while True:
        page = lab.diff(name, from_seq, nodes=nodes, shape=EVERYTHING)
        if page.tombstone is not None:
            announced.append((page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason))
        found += records(page)
        from_seq = page.next_from_seq
        if page.caught_up:
            return found, announced


def as_record(row: dict[str, Any]) -> dict[str, Any]:
    """A row as diff would show it."""
    record = {"$seq": row["seq"], "$ts": int(row["ts"].timestamp() * 1000), "data": json.loads(row["data"])}
    for column, key in (("node", "$node"), ("tag", "$tag")):
        if row[column] is not None:
            record[key] = row[column]
    if row["meta"] is not None:
        record["meta"] = json.loads(row["meta"])
    return record


# --- against diff -----------------------------------------------------------------------------------------


def random_record(rng: random.Random) -> dict[str, Any]:
    record: dict[str, Any] = {
        "data": rng.choice([None, 7, "é\n", '","meta":', {"k": [1, {}]}, "x" * rng.randrange(60)])
    }
    if rng.random() < 0.5:
        record["tag"] = rng.choice(["x", "x1", "y", "é"])
    if rng.random() < 0.5:
        record["node"] = rng.choice(["n", "m"])
    if rng.random() < 0.3:
        record["meta"] = rng.choice([{}, {"m": 1}, {"data": "}"}])
    return record


def damage_a_segment(lab: Lab, rng: random.Random) -> None:
    if files := lab.segment_files():
        flip(rng.choice(files), 40)
        lab.restart()


def random_step(lab: Lab, rng: random.Random) -> None:
    roll = rng.random()
    if roll < 0.55:
        lab.write("a", *[random_record(rng) for _ in range(rng.randrange(1, 6))])
    elif roll < 0.65:
        lab.delete(
            "a", match=rng.choice(["x*", "x", "y"]), before=rng.choice([None, lab.topic("a").head - 3, 5])
        )
    elif roll < 0.7:
        lab.delete("a", before=max(lab.topic("a").floor + rng.randrange(4), 0))
    elif roll < 0.8:
        lab.clock.advance(rng.choice([10, 100, 400]))
    elif roll < 0.9:
        lab.checkpoint(everything=rng.random() < 0.5)
    elif roll < 0.97:
        lab.restart(clean=rng.random() < 0.5)
    else:
        damage_a_segment(lab, rng)


@pytest.mark.parametrize("seed", range(25))
def test_rows_and_gaps_are_those_of_diff_whatever_has_happened(
    make_lab: Callable[..., Lab], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(scanning, "STEP_RECORDS", rng.choice([1, 3, 7, 1000]))
    monkeypatch.setattr(scanning, "STEP_BYTES", rng.choice([1, 60, 1 << 20]))
    lab = make_lab(segment_max_events=rng.randrange(2, 7), hot_bytes=rng.choice([1, 1 << 20]))
    lab.put("a", cap_records=rng.choice([0, 0, 12]), ttl_ms=rng.choice([0, 500]))
    for _ in range(40):
        random_step(lab, rng)
        from_seq = rng.choice([0, rng.randrange(lab.topic("a").head + 3)])
        nodes = rng.choice([None, None, frozenset({"n"})])
        scan = start(lab, from_seq=from_seq, nodes=nodes)
        found = pieces(scan)
        expected, announced = by_diff(lab, "a", from_seq, nodes)
        assert [as_record(row) for row in rows(found)] == expected
        assert gaps(found) == announced
        assert scan.caught_up


# --- bounds and filters -----------------------------------------------------------------------------------


def test_max_records_stops_at_the_last_record_it_delivers(lab: Lab) -> None:
    lab.write("a", {"data": 1}, {"data": 2, "tag": "x"}, {"data": 3}, {"data": 4})
    lab.write("a", {"data": 5}, {"data": 6})
    lab.delete("a", match="x")
    scan = start(lab, max_records=2)
    assert seqs(pieces(scan)) == [1, 3]
    assert (scan.position, scan.caught_up) == (3, False)
    scan = start(lab, max_records=5)
    assert seqs(pieces(scan)) == [1, 3, 4, 5, 6]


@pytest.fixture
def opened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first seq of every run that is opened."""
    found: list[int] = []
    columns = lab.engine.store.columns
    monkeypatch.setattr(lab.engine.store, "columns", lambda run: found.append(run.base) or columns(run))
    return found


def test_runs_outside_the_time_range_are_not_opened(lab: Lab, opened: list[int]) -> None:
    lab.write_each("a", 8)
    lab.clock.advance(1000)
    lab.write_each("a", 1)
    assert seqs(pieces(start(lab, since_ts=lab.clock.now_ms()))) == [9]
    assert opened == [9]


def test_the_columns_have_the_same_types_with_and_without_values(lab: Lab) -> None:
    lab.write("a", 1)
    lab.write("a", {"data": 1, "tag": "x", "node": "n", "meta": {}})
    for from_seq in (0, 1):
        for piece in pieces(start(lab, from_seq=from_seq)):
            assert [str(t) for t in piece.batch.schema.types] == [
                "int64",
                "timestamp[ms, tz=UTC]",
                "string",
                "string",
                "string",
                "string",
            ]


# --- loss -------------------------------------------------------------------------------------------------


def test_a_gap_is_cut_to_the_range_so_that_neighbouring_scans_add_up(lab: Lab) -> None:
    lab.put("a", cap_records=2)
    lab.write_each("a", 10)
    first, second = start(lab, to_seq=5), start(lab, from_seq=5, to_seq=10)
    assert gaps(pieces(first)) == [(1, 5, "cap")]
    assert first.position == 5
    found = pieces(second)
    assert gaps(found) == [(6, 8, "cap")]
    assert seqs(found) == [9, 10]


def test_what_age_takes_during_a_scan_is_announced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "STEP_RECORDS", 2)
    lab.put("a", ttl_ms=100)
    lab.write_each("a", 4)
    lab.clock.advance(50)
    lab.write_each("a", 2)
    scan = start(lab)
    scan.step()
    lab.clock.advance(51)
    rest = pieces(scan)
    assert gaps(rest) == [(3, 4, "ttl")]
    assert seqs(rest) == [5, 6]


def test_a_step_without_records_or_gaps_tells_nothing(lab: Lab) -> None:
    lab.write_each("a", 6, tag="x")
    scan = start(lab, match=parse_match("y"))
    assert (scan.step(), scan.finished, scan.scanned) == (None, True, 6)


@pytest.mark.parametrize(("step", "full", "sizes"), [(8, 100, [8, 4]), (100, 8, [8, 4]), (100, 100, [12])])
def test_small_runs_share_a_batch_until_it_is_full(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, step: int, full: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(scanning, "STEP_RECORDS", step)
    monkeypatch.setattr(scanning, "FULL_RECORDS", full)
    lab.write_each("a", 12)
    assert [piece.batch.num_rows for piece in pieces(start(lab))] == sizes


def test_records_that_fill_a_scan_to_the_last_of_a_run_end_it_there(lab: Lab) -> None:
    for tag in "xxxyxxxx":
        lab.write("a", {"data": 0, "tag": tag})
    scan = start(lab, max_records=3, match=parse_match("x"))
    assert (seqs(pieces(scan)), scan.position) == ([1, 2, 3], 3)
    scan = start(lab, max_records=4)
    assert (seqs(pieces(scan)), scan.position) == ([1, 2, 3, 4], 4)


def test_several_holes_are_announced_in_their_places(lab: Lab) -> None:
    lab.write_each("a", 20)
    lab.checkpoint(everything=True)
    lab.engine.store.close()
    damaged = lab.segment_files()
    flip(damaged[1], 40)
    flip(damaged[3], 40)
    found = pieces(start(lab))
    assert gaps(found) == [(5, 8, "cap"), (13, 16, "cap")]
    assert seqs(found) == [*range(1, 5), *range(9, 13), *range(17, 21)]
    before = [piece.batch.column("seq")[0].as_py() for piece in found if piece.tombstone is not None]
    assert before == [9, 17]
