"""What the clients of a server know: what they were promised, and what they cannot know.

A request that was not answered may have had its effect or not. Everything else is a promise, and is held
against what the server shows after it was killed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any


def text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class Deletion:
    """Asked for: what it may have removed; and, once it was answered, what it must have removed."""

    tag: str | None = None
    before_seq: int = 0
    seqs: frozenset[int] = frozenset()
    must: frozenset[int] = frozenset()

    def may_cover(self, seq: int, tag: str | None) -> bool:
        return seq < self.before_seq or seq in self.seqs or (self.tag is not None and tag == self.tag)


@dataclass
class Topic:
    """One topic, as far as its writers and readers have heard."""

    # The server may drop the oldest; it has to say so.
    capped: bool = False
    # Records do not outlive the process; the head does.
    ephemeral: bool = False
    # Acknowledged or seen by a reader: the payload, and the tag if the writer is known.
    records: dict[int, str] = field(default_factory=dict)
    tags: dict[int, str | None] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    deletions: list[Deletion] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    head: int = 0


class Known:
    """Shared by all client threads."""

    def __init__(self, topics: dict[str, Topic]) -> None:
        self.lock = threading.Lock()
        self.topics = topics
        self.answered = 0
        self.trouble: list[str] = []

    def asked(self, topic: str, payloads: Iterable[str]) -> None:
        with self.lock:
            self.topics[topic].unanswered.update(payloads)

    def written(self, topic: str, seqs: list[int], payloads: list[str], tag: str | None) -> None:
        with self.lock:
            known = self.topics[topic]
            for seq, payload in zip(seqs, payloads, strict=True):
                # A reader may have been quicker, and a deletion too.
                if known.records.get(seq, payload) != payload or seq in known.gone:
                    self.trouble.append(f"{topic}: seq {seq} was given out twice")
                known.records[seq] = payload
                known.tags[seq] = tag
                known.unanswered.discard(payload)
            known.head = max(known.head, seqs[-1])
            self.answered += 1

    def deleting(self, topic: str, deletion: Deletion) -> Deletion:
        """To be called before asking; the result is what the answer will mean."""
        with self.lock:
            known = self.topics[topic]
            known.deletions.append(deletion)
            must = (seq for seq in known.records if deletion.may_cover(seq, known.tags[seq]))
            return replace(deletion, must=frozenset(must))

    def deleted(self, topic: str, deletion: Deletion) -> None:
        with self.lock:
            self.topics[topic].deletions.append(deletion)
            self.answered += 1

    def saw(self, topic: str, seq: int, payload: str) -> None:
        """A reader was shown this record: it must not change or be another's afterwards."""
        with self.lock:
            known = self.topics[topic]
            before = known.records.setdefault(seq, payload)
            known.tags.setdefault(seq, None)
            if before != payload:
                self.trouble.append(f"{topic}: seq {seq} was {before}, then {payload}")
            if seq in known.gone:
                self.trouble.append(f"{topic}: seq {seq} came back")
