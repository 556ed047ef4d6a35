"""Record data of frames whose effects are in the snapshot already: recovery only has to bring it back."""

from __future__ import annotations

from bisect import bisect_right

from topics.log.batch import Batch
from topics.log.engine import Engine
from topics.log.run import Run
from topics.log.topic import Topic


def is_loaded(topic: Topic, seq: int) -> bool:
    """True when a sealed or emptied run answers for this seq, or its data has been read already."""
    return _run_at(topic, seq) is not None


def is_any_loaded(topic: Topic, first: int, last: int) -> bool:
    """The same of at least one seq in a stretch."""
    index = bisect_right(topic.bases, last) - 1
    return index >= 0 and topic.runs[index].last >= first


def load_rows(
    engine: Engine,
    topic: Topic,
    first_seq: int,
    batch: Batch,
    rows: bytes,
    ts: int,
    hops: bytes | None,
    position: int,
) -> Run:
    """Into the run that takes them; they can be read again from `position` on."""
    run = _run_ending_at(topic, first_seq - 1)
    if run is None or run.count >= engine.run_max_events:
        run = Run(topic.id, first_seq, start_position=position)
        topic.insert_run(run)
    if position < run.start_position:
        engine.store.unsealed.lower(run, position)
    engine.store.unsealed.grew(run, run.extend(batch, rows, ts, hops))
    run.framed += batch.count
    if batch.tags is not None:
        topic.tags.extend(run.base, batch.tags, first_seq)
    return run


def _run_at(topic: Topic, seq: int) -> Run | None:
    index = bisect_right(topic.bases, seq) - 1
    return topic.runs[index] if index >= 0 and topic.runs[index].last >= seq else None


def _run_ending_at(topic: Topic, seq: int) -> Run | None:
    run = _run_at(topic, seq)
    return run if run is not None and run.hot is not None and run.last == seq else None
