"""Which topics a read is about, and where in each of them it begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import ORIGIN, Bound, Position, View
from pyspark_topics.options import ReadOptions
from topics.client import Client, Refused


def subscribed(client: Client, options: ReadOptions) -> dict[str, View | None]:
    """The topics of this read as they are now; None for a named one that does not exist."""
    if options.pattern is None:
        names: Iterable[str] = options.topics
    else:
        pattern = re.compile(options.pattern)
        names = [name for name in client.topic_names() if pattern.fullmatch(name)]
    found = {name: _look(client, name) for name in names}
    if options.pattern is not None:
        return {name: view for name, view in found.items() if view is not None}
    return found


def present(client: Client, options: ReadOptions) -> dict[str, View]:
    """Those of them that exist."""
    return {name: view for name, view in subscribed(client, options).items() if view is not None}


def _look(client: Client, name: str) -> View | None:
    try:
        return View.of(client.topic(name))
    except Refused as refusal:
        if refusal.code == "topic_not_found":
            return None
        raise


def start_of(client: Client, view: View, options: ReadOptions) -> Position:
    if options.starting_ts is None:
        return _at_bound(view, options.starting, "startingOffsets")
    if view.floor > view.head:  # nothing is left to tell by, and what was lost may have been of that time
        return Position(ORIGIN, view.epoch)
    first = _first_since(client, view, options.starting_ts)
    if first is None:
        return view.end
    # Records lost at the front may have been of that time: start where they are announced.
    return Position(ORIGIN if first <= view.floor else first - 1, view.epoch)


def end_of(client: Client, view: View, options: ReadOptions) -> Position:
    if options.ending_ts is None:
        at = _at_bound(view, options.ending, "endingOffsets")
        return Position(min(at.seq, view.head), view.epoch)
    first = _first_since(client, view, options.ending_ts)
    return view.end if first is None else Position(first - 1, view.epoch)


def _at_bound(view: View, bound: Bound, option: str) -> Position:
    seq = bound.seqs.get(view.name)
    if seq is not None:
        return Position(seq, bound.epochs.get(view.name, view.epoch))
    word = bound.word_for(view.name)
    if not word:
        raise OptionError(f'option "{option}" says nothing about topic "{view.name}"')
    return view.end if word == "latest" else Position(ORIGIN, view.epoch)


def _first_since(client: Client, view: View, ts: int) -> int | None:
    """The first live seq of that time or later. Times never decrease with seq, so one look is enough."""
    if view.floor > view.head:
        return None
    request = {
        "from_seq": view.floor - 1,
        "to_seq": view.head,
        "epoch": view.epoch,
        "columns": ["seq"],
        "since_ts": ts,
        "max_records": 1,
    }
    seqs = pa.ipc.open_stream(client.scan(view.name, request).read()).read_all().column("seq")
    return seqs[0].as_py() if len(seqs) else None
