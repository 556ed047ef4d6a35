"""After a restart: is everything that was promised there, and is everything that is missing announced?"""

from __future__ import annotations

import time
from typing import Any

from tests.kill.clients import Caller
from tests.kill.known import Known, Topic, text

# A server that has just started, with pipelines that all come back at once, may ask to be spared for a while.
SPARED_S = 60.0
TRY_LATER = (429, 503)


def _patiently(caller: Caller, path: str, body: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + SPARED_S
    status, page = caller.ask("POST", path, body)
    while status in TRY_LATER and time.monotonic() < deadline:
        time.sleep(0.5)
        status, page = caller.ask("POST", path, body)
    assert status == 200, page
    return page


class Found:
    """A topic read from its beginning to its head."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.records: dict[int, tuple[str, str | None]] = {}
        self.gaps: list[tuple[int, int]] = []
        self.head = 0
        cursor = 0
        while True:
            body = {"from_seq": cursor, "limit": 1000, "include_tags": True}
            page = _patiently(caller, f"/v0/topics/{name}/diff", body)
            self._take(page)
            cursor, self.head = page["next_from_seq"], page["head_seq"]
            if page["caught_up"]:
                return

    def _take(self, page: dict[str, Any]) -> None:
        gap = page["tombstone"]
        if gap is not None:
            self.gaps.append((gap["gap_from"], gap["gap_to"]))
        for record in page["records"]:
            self.records[record["$seq"]] = (text(record["data"]), record.get("$tag"))

    def is_announced(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.gaps)


def settle(caller: Caller, known: Known) -> list[str]:
    """Compare everything, then take what is there as the new truth: unanswered requests are now decided."""
    trouble = [*known.trouble]
    for name, topic in known.topics.items():
        found = Found(caller, name)
        trouble += [f"{name}: {problem}" for problem in _compare(topic, found)]
        _adopt(topic, found)
    return trouble


def _compare(topic: Topic, found: Found) -> list[str]:
    trouble = []
    if found.head < topic.head:
        trouble.append(f"the head fell from {topic.head} to {found.head}")
    must_be_gone = topic.gone.union(*(deletion.must for deletion in topic.deletions))
    for seq, payload in topic.records.items():
        if seq not in found.records:
            if not _may_be_missing(topic, found, seq):
                trouble.append(f"seq {seq} is missing and nobody said so")
        elif found.records[seq][0] != payload:
            trouble.append(f"seq {seq} was {payload} and is {found.records[seq][0]}")
    trouble += [f"seq {seq} was deleted and is back" for seq in must_be_gone & found.records.keys()]
    promised = set(topic.records.values())
    seen: set[str] = set()
    for seq, (payload, _) in found.records.items():
        if payload in seen:
            trouble.append(f"{payload} is there twice, again at {seq}")
        seen.add(payload)
        if payload not in promised and payload not in topic.unanswered:
            trouble.append(f"nobody wrote {payload} at {seq}")
    if found.gaps and not (topic.capped or topic.ephemeral):
        trouble.append(f"a killed process lost records: {found.gaps}")
    return trouble


def _may_be_missing(topic: Topic, found: Found, seq: int) -> bool:
    if any(deletion.may_cover(seq, topic.tags[seq]) for deletion in topic.deletions):
        return True
    return (topic.capped or topic.ephemeral) and found.is_announced(seq)


def _adopt(topic: Topic, found: Found) -> None:
    topic.gone |= topic.records.keys() - found.records.keys()
    topic.records = {seq: payload for seq, (payload, _) in found.records.items()}
    topic.tags = {seq: tag for seq, (_, tag) in found.records.items()}
    topic.unanswered.clear()
    topic.deletions.clear()
    topic.head = found.head
