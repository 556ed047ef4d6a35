"""Snapshots made of topics that were encoded before, and bytes that are none."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from topics.log.seal.checkpoint import capture_topic
from topics.log.seal.snapshot_state import SnapshotState, decode, encode_snapshot, encode_topic


@pytest.mark.parametrize("topics", [0, 1, 15, 16, 20])
def test_topics_encoded_ahead_are_those_of_the_snapshot(lab: Lab, topics: int) -> None:
    for number in range(topics):
        lab.write(f"t{number}", number)
    states = [capture_topic(topic) for topic in lab.engine.by_id.values()]
    whole = SnapshotState(1000, 500, topics + 1, 3, 17, states, {"cursors": {"c": [1, 2]}})
    head = SnapshotState(1000, 500, topics + 1, 3, 17, [], whole.extensions)
    assert decode(b"".join(encode_snapshot(head, [encode_topic(state) for state in states]))) == whole


@pytest.mark.parametrize("body", [b"", b"\x97", b"\x01", b"\x97" + b"\xff" * 50, b"\x91" * 100_000])
def test_other_bytes_are_no_snapshot(body: bytes) -> None:
    assert decode(body) is None
