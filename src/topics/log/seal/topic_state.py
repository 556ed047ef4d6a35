"""One topic in a snapshot: how its state is captured, and how a topic is restored from it."""

from array import array
from typing import Any

import numpy as np

from topics.log.run import Run
from topics.log.seal.snapshot_state import CAPTURED_AS_IS, TopicState
from topics.log.topic import Topic


def capture_topic(topic: Topic) -> TopicState:
    """Everything but record data."""
    as_is: dict[str, Any] = {name: getattr(topic, name) for name in CAPTURED_AS_IS}
    return TopicState(
        id=topic.id,
        name=topic.name,
        config=topic.config,
        seq_base=topic.seq_base,
        runs=[run.capture() for run in topic.runs if run.sealed is not None or run.hot is None],
        unsealed_dead=_unsealed_dead(topic),
        holes=[hole.capture() for hole in topic.holes],
        ledger=topic.ledger.dump(),
        gone_times=b"" if topic.gone_times is None else topic.gone_times.pack(),
        **as_is,
    )


def _unsealed_dead(topic: Topic) -> bytes:
    return b"".join(
        (np.flatnonzero(np.frombuffer(run.dead, np.uint8)) + run.base).astype(np.int64).tobytes()
        for run in topic.runs
        if run.sealed is None and run.dead is not None
    )


def restore_topic(topic: Topic, state: TopicState) -> None:
    """Give a new topic the state that was captured; the journal has the records of the other runs."""
    topic.restore_marks(state)
    for saved in state.runs:
        run = Run(
            topic.id,
            saved.base,
            None,
            count=saved.count,
            live_count=saved.live_count,
            live_bytes=saved.live_bytes,
            first_ts=saved.first_ts,
            last_ts=saved.last_ts,
            dead_count=saved.dead_count,
        )
        if saved.segment:
            topic.store.seal(run, saved.segment, array("I", saved.unflipped))
        topic.insert_run(run)
