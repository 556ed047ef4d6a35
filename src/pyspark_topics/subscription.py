"""Which topics a read is about, and where in each of them it begins and ends."""

import re
from collections.abc import Iterable

import pyarrow as pa

from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import NO_EPOCH, ORIGIN, Bound, StreamOffset, TopicView
from pyspark_topics.options import SourceOptions
from pyspark_topics.servers import TopicsClient


def subscribed(
    client: TopicsClient, options: SourceOptions, *, patient: bool = True
) -> tuple[dict[str, TopicView], list[str]]:
    """The topics of this read as they are now, and those that were named and do not exist."""
    names: Iterable[str] | None = options.topics
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        # Several servers tell all they have at once.
        several = len(options.server.urls) > 1
        names = None if several else [name for name in client.topic_names() if pattern.fullmatch(name)]
    states = client.states(names, patient=patient)
    if options.pattern is not None:
        states = {name: state for name, state in states.items() if pattern.fullmatch(name)}
    found = {name: TopicView.of(state) for name, state in states.items()}
    # One that matched a pattern and is gone by now was not asked for by its name; and one that was may be on
    # a server that does not answer.
    return found, [] if client.silent else [name for name in options.topics if name not in found]


def _time_for(view: TopicView, one: int | None, each: dict[str, int] | None, option: str) -> int | None:
    """The time at which the read of this topic begins or ends, if that is how it was given."""
    if each is None:
        return one
    if view.name not in each:
        raise OptionError(f'option "{option}" says nothing about topic "{view.name}"')
    return each[view.name]


def start_of(client: TopicsClient, view: TopicView, options: SourceOptions) -> StreamOffset:
    since = _time_for(view, options.starting_ts, options.starting_times, "startingOffsetsByTimestamp")
    if since is None:
        at = _at_bound(view, options.starting, "startingOffsets")
        if at.epoch == view.epoch and at.seq > view.head:
            # In this life of the topic there never was such a seq: a typo, or an offset of another server.
            raise OptionError(
                f'option "startingOffsets" is {at.seq} for topic "{view.name}", whose head is {view.head}: '
                f'give an offset up to {view.head}, or "latest"; if it is one of an earlier life of the '
                "topic, give its epoch, too"
            )
        return at
    if view.floor > view.head:  # nothing is left to tell by, and what was lost may have been of that time
        return StreamOffset(ORIGIN, view.epoch)
    first = _first_since(client, view, since)
    if first is None:
        by_topic = options.starting_times is not None
        if (options.none_since or ("error" if by_topic else "latest")) == "error":
            option = "startingOffsetsByTimestamp" if by_topic else "startingTimestamp"
            raise OptionError(
                f'option "{option}" is {since} for topic "{view.name}", which has no record of that time or '
                'later: give an earlier one, or startingOffsetsByTimestampStrategy = "latest"'
            )
        return view.end
    # Records lost at the front may have been of that time: start where they are announced.
    return StreamOffset(ORIGIN if first <= view.floor else first - 1, view.epoch)


def start_of_missing(name: str, options: SourceOptions) -> StreamOffset:
    """A topic that is not there yet is read from its beginning; a place in a life that ended is kept."""
    seq = options.starting.seqs.get(name, ORIGIN)
    epoch = options.starting.epochs.get(name, NO_EPOCH)
    if seq > ORIGIN and epoch == NO_EPOCH:
        raise OptionError(
            f'option "startingOffsets" is {seq} for topic "{name}", which does not exist: give "earliest" to '
            "wait for it, or correct the name"
        )
    return StreamOffset(seq, epoch)


def end_of(client: TopicsClient, view: TopicView, options: SourceOptions) -> StreamOffset:
    until = _time_for(view, options.ending_ts, options.ending_times, "endingOffsetsByTimestamp")
    if until is None:
        at = _at_bound(view, options.ending, "endingOffsets")
        return StreamOffset(min(at.seq, view.head), view.epoch)
    first = _first_since(client, view, until)
    return view.end if first is None else StreamOffset(first - 1, view.epoch)


def _at_bound(view: TopicView, bound: Bound, option: str) -> StreamOffset:
    seq = bound.seqs.get(view.name)
    if seq is not None:
        return StreamOffset(seq, bound.epochs.get(view.name, view.epoch))
    word = bound.word_for(view.name)
    if not word:
        raise OptionError(f'option "{option}" says nothing about topic "{view.name}"')
    return view.end if word == "latest" else StreamOffset(ORIGIN, view.epoch)


def _first_since(client: TopicsClient, view: TopicView, ts: int) -> int | None:
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
    with client.scan(view.name, request) as body:
        seqs = pa.ipc.open_stream(body.read()).read_all().column("seq")
    return seqs[0].as_py() if len(seqs) else None
