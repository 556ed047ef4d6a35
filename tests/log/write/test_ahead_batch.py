"""Batches that are rendered ahead: what becomes of them is what would have become of them anyway."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.log.harness import Lab, records
from tests.log.write.test_arrow_batch import batch as arrow
from tests.log.write.test_large_append import in_pieces
from topics.log import run, topic
from topics.log.read.render import Shape
from topics.log.remove.tags import TagMatch
from topics.log.run import HotColumns
from topics.log.write import ahead_batch
from topics.log.write.ahead_batch import AheadBatch
from topics.log.write.append_request import AppendRequest, column_request
from topics.log.write.arrow_batch import check_batch

pytestmark = pytest.mark.usefixtures("both_ways")

RECORDS = [
    {"data": {"n": n, "text": "é" * 9}, "tag": f"t{n % 3}", "node": f"n{n % 2}", "meta": {"m": n}}
    for n in range(9)
]
# Those that the accelerator renders are patched only if they are large.
PADDED = [{"data": "x" * 200_000} for _ in range(9)]


def as_json(written: list[Any], key: bytes | None = None) -> AppendRequest:
    return in_pieces(json.dumps({"records": written}, separators=(",", ":")).encode(), key)


def as_arrow(written: list[Any], key: bytes | None = None) -> AppendRequest:
    columns: dict[str, list[Any]] = {"data": [json.dumps(record["data"]) for record in written]}
    for name in ("tag", "node", "meta"):
        values = [record.get(name) for record in written]
        if any(values):
            columns[name] = [json.dumps(value) for value in values] if name == "meta" else values
    return column_request(check_batch(arrow(**columns)), create=None, idempotency_key=key)


KINDS = pytest.mark.parametrize("made", [as_json, as_arrow])
WRITTEN = pytest.mark.parametrize("written", [RECORDS, RECORDS[:1], PADDED], ids=["all", "one", "padded"])
WITH_TAGS = Shape(tags=True)
Made = Callable[..., AppendRequest]


@pytest.fixture
def make_lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda name="data": Lab(tmp_path / name)


@pytest.fixture(autouse=True)
def _every_batch_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_batch, "ALONE_BYTES", 1)
    monkeypatch.setattr(topic, "_MOVED_BYTES", 0)
    monkeypatch.setattr(run, "_KEPT_ROWS", 1)


def everything(lab: Lab) -> list[dict[str, Any]]:
    return records(lab.diff("t", max_bytes=1 << 30, shape=WITH_TAGS))


def prepared(lab: Lab, request: AppendRequest, *, meant_for: int | None = None) -> AheadBatch:
    batch = request.batch
    assert isinstance(batch, AheadBatch)
    there = lab.engine.by_name.get("t")
    next_seq = 1 if there is None else there.assigned + 1
    now = lab.engine.now()
    batch.prepare(next_seq if meant_for is None else meant_for, now, now)
    return batch


def write(lab: Lab, request: AppendRequest) -> AheadBatch:
    batch = prepared(lab, request)
    lab.engine.append("t", request, lambda _: None, lambda _: None)
    return batch


@KINDS
@WRITTEN
def test_a_run_of_its_own_whose_rows_are_not_copied(
    make_lab: Callable[..., Lab], made: Made, written: list[Any]
) -> None:
    lab, plain = make_lab("alone"), make_lab("plain")
    for each in (lab, plain):
        each.write("t", 1)
    batch = write(lab, made(written))
    payload, _ = batch.prepared or (b"", 0)
    plain.engine.append("t", made(written), lambda _: None, lambda _: None)
    for each in (lab, plain):
        each.engine.queue.sync_now()
        each.write("t", 2)
    runs = lab.topic("t").runs
    assert [each.count for each in runs] == [1, len(written), 1]
    hot = runs[1].hot
    assert hot is not None
    assert isinstance(hot.rows, memoryview)
    assert np.shares_memory(np.frombuffer(hot.rows, np.uint8), np.frombuffer(payload, np.uint8))
    assert hot.weight >= len(payload)
    assert lab.engine.store.unsealed.bytes >= len(payload)
    for again in (False, True):
        if again:
            lab.restart()
        assert everything(lab) == everything(plain)
        assert lab.topic("t").tags.matching(TagMatch("t", True)).tolist() == [
            number for number, record in enumerate(written, 2) if "tag" in record
        ]


@KINDS
def test_others_go_on_behind_it_when_it_is_refused(make_lab: Callable[..., Lab], made: Made) -> None:
    lab = make_lab()
    lab.write("t", 1)
    write(lab, made(RECORDS))
    written_to = lab.topic("t")
    assert written_to.assigned == 1 + len(RECORDS)
    written_to.take_back(1, len(RECORDS), made(RECORDS).batch.size)
    lab.engine.queue.waiting.clear()
    assert [each.count for each in written_to.runs] == [1]
    assert not len(written_to.tags.matching(TagMatch("t", True)))
    lab.write("t", 2)
    assert lab.seqs("t") == [1, 2]


@KINDS
def test_keys_stand_before_it(make_lab: Callable[..., Lab], made: Made) -> None:
    lab = make_lab()
    answers: list[tuple[int, bool]] = []
    for _ in range(2):
        request = made(PADDED, b"key")
        prepared(lab, request)
        lab.engine.append(
            "t", request, lambda op: answers.append((op.first_seq, op.deduped)), lambda error: None
        )
        lab.engine.queue.sync_now()
        lab.restart()
    assert answers == [(1, False), (1, True)]
    assert lab.seqs("t") == [*range(1, 10)]


@KINDS
@WRITTEN
@pytest.mark.parametrize("meant_for", [3, 1])
def test_numbers_are_put_right(
    make_lab: Callable[..., Lab], made: Made, written: list[Any], meant_for: int
) -> None:
    """As if it had been rendered for these in the first place."""
    lab = make_lab()
    lab.write("t", *range(99))
    request = made(written)
    batch = prepared(lab, request, meant_for=100 + meant_for)
    first, ts = 100, lab.engine.now() + 12_345
    if not batch.restamp(first, ts):
        # By the accelerator, and so small that to render it again is nothing.
        assert written is not PADDED
        return
    assert bytes(batch.render(first, ts)) == bytes(made(written).batch.render(first, ts))
    assert isinstance(batch.columns, HotColumns)
    assert (batch.columns.base, batch.columns.ts_at(0)) == (first, ts)
    lab.clock.advance(12_345)
    lab.engine.append("t", request, lambda _: None, lambda _: None)
    lab.engine.queue.sync_now()
    found = [row for row in everything(lab) if row["$seq"] >= first]
    assert [(row["$seq"], row["data"]) for row in found] == [
        (first + n, record["data"]) for n, record in enumerate(written)
    ]
    assert lab.topic("t").tags.matching(TagMatch("t", True)).tolist() == [
        number for number, record in enumerate(written, first) if "tag" in record
    ]


@KINDS
def test_longer_numbers_are_rendered_anew(make_lab: Callable[..., Lab], made: Made) -> None:
    lab = make_lab()
    batch = prepared(lab, made(PADDED), meant_for=1)
    now = lab.engine.now()
    before = bytes(batch.render(1, now))
    assert not batch.restamp(2, now)
    assert not batch.restamp(100, now)
    assert not batch.restamp(1, now * 10)
    assert bytes(batch.render(1, now)) == before


@KINDS
def test_a_run_that_begins_with_a_large_batch_keeps_it_where_it_is(
    make_lab: Callable[..., Lab], made: Made
) -> None:
    """Rendered when it was written, which a batch of a few megabytes may be."""
    lab = make_lab()
    request = made(PADDED)
    lab.engine.append("t", request, lambda _: None, lambda _: None)
    lab.engine.queue.sync_now()
    hot = lab.topic("t").runs[0].hot
    assert hot is not None
    payload, _ = request.batch.prepared or (b"", 0)
    if payload:
        assert np.shares_memory(np.frombuffer(hot.rows, np.uint8), np.frombuffer(payload, np.uint8))
        assert hot.weight >= len(payload)
    lab.write("t", 2)
    assert [row["data"] for row in everything(lab)] == [*(record["data"] for record in PADDED), 2]
    lab.restart()
    assert [row["data"] for row in everything(lab)] == [*(record["data"] for record in PADDED), 2]
