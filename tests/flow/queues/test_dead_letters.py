"""Jobs delivered too often: moved in one commit, in one place or the other, whatever happens on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab
from tests.support.appending import append
from topics import codec
from topics.core.settings import MAX_META_BYTES, MAX_META_KEYS
from topics.flow.queues import dead_letters
from topics.log.read.render import Shape


@pytest.fixture
def lab(lab: QueueLab) -> QueueLab:
    lab.put("q", max_deliveries=1, dead_letter="dead")
    return lab


def letters(lab: QueueLab) -> list[Any]:
    page = lab.diff("dead", shape=Shape(tags=True))
    return [json.loads(line) for line in page.rows.splitlines()]


def let_expire(lab: QueueLab, times: int = 1) -> None:
    for _ in range(times):
        lab.claim(1000)
        lab.clock.advance(LEASE_MS + 1)


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        (None, {}),
        ({}, {}),
        (
            {"$dead_letter_from": "older", "x": 1},
            {"x": 1, "$dead_letter_before": {"$dead_letter_from": "older"}},
        ),
        ({"$dead_letter_src_seq": "9"}, {"$dead_letter_before": {"$dead_letter_src_seq": "9"}}),
        ({"$dead_letter_before": 5}, {"$dead_letter_before": {"$dead_letter_before": 5}}),
        ({"$dead_letter_own": "mine"}, {"$dead_letter_own": "mine"}),
        ({"x": 'a"b'}, {"x": 'a"b'}),
    ],
)
def test_a_letter_tells_of_its_last_queue(lab: QueueLab, meta: Any, kept: Any) -> None:
    lab.write("q", {"data": 1, "meta": meta})
    let_expire(lab)
    lab.claim()
    [letter] = letters(lab)
    assert letter["meta"] == kept | {
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }


def test_a_key_hidden_behind_an_escape_does_not_appear_twice(lab: QueueLab) -> None:
    body = b'{"records":[{"data":1,"meta":{"\\u0024dead_letter_from":"older"}}]}'
    lab.commit(lambda done, fail: append(lab.engine, "q", body, done, fail))
    let_expire(lab)
    lab.claim()
    [row] = lab.diff("dead").rows.splitlines()
    objects: list[list[tuple[str, Any]]] = []
    json.loads(row, object_pairs_hook=objects.append)
    assert [[name for name, _ in pairs if name == "$dead_letter_from"] for pairs in objects] == [
        ["$dead_letter_from"],  # what it said before
        ["$dead_letter_from"],
        [],
    ]


def _meta_of_a_letter_that_dies_again(lab: QueueLab, **own: Any) -> Any:
    lab.write("q", {"data": 1, "meta": {"$dead_letter_from": "older", **own}})
    let_expire(lab)
    lab.claim()
    [letter] = letters(lab)
    assert (letter["data"], letter["meta"]["$dead_letter_from"]) == (1, "q")
    return letter["meta"]


@pytest.mark.parametrize(("keys", "kept"), [(MAX_META_KEYS - 4, True), (MAX_META_KEYS - 3, False)])
def test_what_was_told_before_is_one_of_the_keys_that_a_meta_may_have(
    lab: QueueLab, keys: int, kept: bool
) -> None:
    meta = _meta_of_a_letter_that_dies_again(lab, **{f"k{number}": number for number in range(keys)})
    assert meta.get("$dead_letter_before") == ({"$dead_letter_from": "older"} if kept else None)
    assert len(meta) == MAX_META_KEYS


@pytest.mark.parametrize(("more", "kept"), [(0, True), (1, False)])
def test_what_was_told_before_is_kept_as_far_as_a_meta_reaches(lab: QueueLab, more: int, kept: bool) -> None:
    around = {
        "own": "",
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
        "$dead_letter_before": {"$dead_letter_from": "older"},
    }
    room = MAX_META_BYTES - len(msgspec.json.encode(around))
    meta = _meta_of_a_letter_that_dies_again(lab, own="x" * (room + more))
    assert ("$dead_letter_before" in meta) == kept
    assert len(meta["own"]) == room + more


def test_jobs_waiting_for_room_are_delivered_again_when_the_limit_is_raised(lab: QueueLab) -> None:
    lab.put("dead", type="log", cap_records=1, discard="reject")
    lab.write("dead", "full")
    lab.write("q", 1)
    let_expire(lab)
    assert lab.claim() == []
    lab.put("q", max_deliveries=2, dead_letter="dead")
    assert [job["deliveries"] for job in lab.claim()] == [2]


def test_no_more_topics_leaves_the_job_claimable(tmp_path: Path) -> None:
    lab = QueueLab(tmp_path, max_topics=1)
    lab.put("q", max_deliveries=1, dead_letter="dead")
    lab.write("q", 1)
    let_expire(lab)
    assert lab.claim() == []
    assert lab.counters() == (1, 0, 0)
    assert lab.engine.find("dead") is None


def test_a_failed_commit_leaves_the_job_in_the_queue(lab: QueueLab) -> None:
    lab.put("dead", type="log")
    lab.write("q", 1, 2)
    let_expire(lab)
    lab.break_the_disk()
    for _ in range(2):
        assert lab.claim(9) == []
        assert lab.counters() == (2, 0, 0)
        assert lab.queue().table.overdue == [1, 2]
        assert not lab.queue().table.moving
    assert lab.seqs("dead") == []


@pytest.mark.parametrize(("queue", "dead"), [("disk", "fsync"), ("fsync", "disk"), ("disk", "disk")])
def test_a_move_is_synced_when_either_end_asks_for_it(tmp_path: Path, queue: str, dead: str) -> None:
    lab = QueueLab(tmp_path)
    lab.put("q", max_deliveries=1, dead_letter="dead", durability=queue)
    lab.put("dead", type="log", durability=dead)
    lab.write("q", 1)
    let_expire(lab)
    before = lab.engine.counters.fsyncs
    lab.claim()
    assert lab.counters() == (0, 0, 1)
    assert lab.engine.counters.fsyncs == before + ("fsync" in (queue, dead))


@pytest.mark.parametrize("levels", [10, 900, 950, 970, 985, 1000, 5000])
def test_a_meta_that_is_nested_too_deeply_to_be_read_goes_along(levels: int) -> None:
    """It may have been taken just so: a letter of it is one level deeper."""
    meta = b'{"own":1,"$dead_letter_from":%b%b}' % (b"[" * levels, b"]" * levels)
    letter: bytes | None = meta
    for queue in ("a", "b", "c"):
        assert letter is not None
        letter = dead_letters._with_origin(letter, queue, 1, 2, None)
        assert letter.startswith(b'{"own":1,')
        assert b'"$dead_letter_from":"%b"' % queue.encode() in letter
        assert letter.count(b"[") == letter.count(b"]")
    for _ in range(4):
        assert letter is not None
        dead_letters.origin_of(letter)
        letter = dead_letters.without_origin(letter)
    assert levels > 900 or letter == b'{"own":1}'


def test_a_redriven_letter_has_no_more_keys_than_a_meta_may_have() -> None:
    told = {f"$dead_letter_{name}": "x" for name in ("from", "deliveries", "src_seq", "error")}
    own = {f"k{number}": 1 for number in range(MAX_META_KEYS - 4)}
    for more in (0, 1):
        whole = own | {f"more{number}": 1 for number in range(more)}
        letter = msgspec.json.encode(whole | told | {"$dead_letter_before": told})
        back = json.loads(dead_letters.without_origin(letter) or b"")
        assert back == (whole if more else whole | told)


def test_a_move_that_breaks_off_takes_no_job_out_of_the_queue(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write("q", *[{"data": number} for number in (1, 2, 3)])
    let_expire(lab)

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(codec, "from_values", broken)
        with pytest.raises(RuntimeError):
            lab.claim(3)
    lab.claim(3)
    assert [letter["data"] for letter in letters(lab)] == [1, 2, 3]
