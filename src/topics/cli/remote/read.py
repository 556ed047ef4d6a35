"""`topics read` and `topics tail`: the records of topics, with what was lost in its place among them.

A topic is a NAME, all that begin with PREFIX*, or NAME@SEQ~EPOCH: what follows this position.
"""

import argparse
import queue
import shlex
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topics.cli.errors import DONE, INTERRUPTED, LOSS, UNREACHABLE, Interruption, print_error
from topics.cli.output import Output
from topics.cli.parser import add_verb
from topics.cli.remote.client import none_begins, state_of, topic_name, topic_names, with_suggestion
from topics.cli.remote.formats import Item, Printer, printer
from topics.cli.remote.options import add_flags, client_for, flags_of, given_flags, moment, natural
from topics.client import Unreachable
from topics.client.cursors import MemoryCursor, position_after
from topics.client.errors import TopicNotFound
from topics.client.records import Position, Record, Restarted
from topics.client.sync import Topics
from topics.client.topic import Topic
from topics.core import MAX_WATCH_TOPICS, UserMistake

TAIL = 10
# The most that a server counts from the end of a topic.
MOST_LAST = 1000
# How long a server that is followed may be silent.
ANSWER_WITHIN_S = 30.0
# How often a topic that was dropped is looked for, while it is followed.
GONE_PAUSE_S = 1.0
# How often topics that a prefix matches are looked for, while they are followed.
LOOK_S = 1.0
# Items that wait to be printed, while a terminal or a pipe takes its time.
MOST_WAITING = 1000


def add_parser(verbs: Any) -> None:
    for verb in ("read", "tail"):
        parser = add_verb(verbs, verb, run, __doc__, keeps_lines=True)
        parser.add_argument("topics", nargs="+", metavar="TOPIC", help="NAME, PREFIX* or NAME@SEQ~EPOCH")
        begin = parser.add_mutually_exclusive_group()
        begin.add_argument("--from", dest="first", type=natural, metavar="SEQ", help="this one first")
        default = f" ({TAIL})" if verb == "tail" else ""
        begin.add_argument("--last", type=natural, metavar="N", help=f"the last N{default}")
        parser.add_argument("--since", type=moment, metavar="WHEN", help="10m ago, or an ISO time")
        parser.add_argument("--until", type=moment, metavar="WHEN", help="10m ago, or an ISO time")
        parser.add_argument("--tag", help="only with this tag; user:* for all that begin so")
        parser.add_argument("-n", "--limit", type=natural, metavar="N", help="end after so many records")
        parser.add_argument(
            "--follow", action="store_true", default=verb == "tail", help="go on with what comes"
        )
        parser.add_argument(
            "--format", metavar="FORMAT", help="human, json, data or a template: '{seq} {data[sku]}'"
        )
        parser.add_argument("--fail-on-loss", action="store_true", help="end at a loss, with exit code 3")
        add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    named = [_Named.of(text) for text in arguments.topics]
    output = Output(arguments)
    show = printer(output, arguments.format, many=len(named) > 1 or named[0].is_prefix)
    patience = {"awaits_restarts": True, "answer_within_s": ANSWER_WITHIN_S} if arguments.follow else {}
    with client_for(arguments, **patience) as client:
        reader = _Reader(client, arguments, named, show)
        try:
            with reader.interruption:
                reader.run()
        except _Enough:
            pass
        except _LossMet:
            print_error(f"this loss ends it; to go on behind it: {reader.going_on()}")
            return LOSS
        except (KeyboardInterrupt, Unreachable) as end:
            if isinstance(end, Unreachable):
                if not client._session.rule.has_answered:
                    raise
                print_error(str(end))
            print_error(f"go on with: {reader.going_on()}")
            return UNREACHABLE if isinstance(end, Unreachable) else INTERRUPTED
    return DONE


class _Enough(Exception):
    """--limit records were printed."""


class _LossMet(Exception):
    """A loss was printed, and --fail-on-loss was given."""


@dataclass(frozen=True)
class _Named:
    """A topic, a prefix or a position on the command line."""

    name: str
    is_prefix: bool = False
    seq: int | None = None
    epoch: int | None = None

    @classmethod
    def of(cls, text: str) -> "_Named":
        if text.endswith("*"):
            return cls(text[:-1], is_prefix=True)
        name, at, position = text.partition("@")
        if not at:
            return cls(name)
        seq, _, epoch = position.partition("~")
        if not seq.isdigit() or not (epoch.isdigit() or "~" not in position):
            raise UserMistake(f'"{text}" is no position, which looks like {name}@SEQ~EPOCH')
        return cls(name, seq=int(seq), epoch=int(epoch) if epoch else None)


def _cursor_at(position: Position | None) -> MemoryCursor:
    cursor = MemoryCursor()
    if position is not None:
        cursor._move(position)
    return cursor


class _Feed:
    """What is read of one topic, and how far it was printed."""

    def __init__(
        self,
        topic: Topic[Any],
        arguments: argparse.Namespace,
        *,
        position: Position | None = None,
        **begin: Any,
    ) -> None:
        """`begin` is where to begin without a position: `from_seq` or `last`."""
        self.name = topic.name
        self._topic = topic
        self._begin = begin
        self._filters = {"since": arguments.since, "until": arguments.until, "tag": arguments.tag}
        self._cursor = _cursor_at(position)
        # Records before this one are left out, in this incarnation of the topic.
        self.first = 0
        self._start = position
        self._printed: Item | None = None

    @property
    def position(self) -> Position | None:
        """After what was printed, and after what the server has nothing to print of."""
        item, printed = self._printed, self._start
        if isinstance(item, Record):
            printed = Position(item.topic, item.epoch, item.seq)
        elif item is not None:
            printed = position_after(item)
        positions = [position for position in (printed, self._cursor.position) if position is not None]
        return max(positions, key=lambda position: (position.epoch, position.seq), default=None)

    def printed(self, item: Item) -> None:
        self._printed = item
        if isinstance(item, Restarted):
            self.first = 0

    def history(self) -> Iterator[Item]:
        """The items up to the head."""
        last = self._begin.get("last") or 0
        return self._items(self._cursor) if last <= MOST_LAST else self._last_of_all(last)

    def follow(self, *, apart: bool = False) -> Iterator[Item]:
        """The items up to the head, then new ones. Waits for a topic that is dropped to come back.

        With `apart`, the history was read, and a thread follows that reads ahead of what is printed.
        """
        last = self._begin.get("last") or 0
        if last > MOST_LAST and self.position is None:
            yield from self._last_of_all(last)
        cursor = _cursor_at(self.position) if apart else self._cursor
        while True:
            try:
                yield from self._items(cursor, follow=True)
                return
            except TopicNotFound:
                if self.position is None and not apart:
                    raise
                time.sleep(GONE_PAUSE_S)

    def _items(self, cursor: MemoryCursor, *, follow: bool = False) -> Iterator[Item]:
        return self._topic.items(cursor, follow=follow, raw=True, **self._begin, **self._filters)

    def _last_of_all(self, last: int) -> Iterator[Item]:
        """The last items of a walk through the whole topic, without the losses in front of them."""
        kept: deque[Item] = deque()
        records = 0
        cursor = _cursor_at(None)
        for item in self._topic.items(cursor, raw=True, **self._filters):
            kept.append(item)
            records += isinstance(item, Record)
            while records > last or (records == last and not isinstance(kept[0], Record)):
                records -= isinstance(kept.popleft(), Record)
        yield from kept
        self._cursor = cursor


class _Reader:
    def __init__(
        self, client: Topics, arguments: argparse.Namespace, named: list[_Named], show: Printer
    ) -> None:
        self._client = client
        self._arguments = arguments
        self._named = named
        self._show = show
        self._left: int | None = arguments.limit
        self._feeds: dict[str, _Feed] = {}
        self.interruption = Interruption()

    def run(self) -> None:
        if self._left == 0:
            return
        if len(self._named) == 1 and not self._named[0].is_prefix:
            self._run_one(self._named[0].name)
            return
        for name in self._names():
            self._feeds[name] = self._feed(name)
        if len(self._feeds) > MAX_WATCH_TOPICS and self._arguments.follow:
            raise UserMistake(f"at most {MAX_WATCH_TOPICS} topics can be followed, not {len(self._feeds)}")
        for feed in self._feeds.values():
            for item in feed.history():
                self._take(feed, item)
        if self._arguments.follow:
            for feed, item in self._from_all():
                self._take(feed, item)

    def _run_one(self, name: str) -> None:
        try:
            feed = self._feeds[name] = self._feed(name)
            for item in feed.follow() if self._arguments.follow else feed.history():
                self._take(feed, item)
        except TopicNotFound as refusal:
            raise with_suggestion(self._client, refusal, name) from None

    def _names(self) -> Iterator[str]:
        for each in self._named:
            if each.is_prefix:
                yield from self._names_that_begin(each.name)
            else:
                # All of them are there, or nothing is printed.
                state_of(self._client, each.name)
                yield each.name

    def _names_that_begin(self, prefix: str) -> list[str]:
        """The names; if there are none, an error or a note: a prefix may be misspelt."""
        names = topic_names(self._client, prefix)
        if not names and self._arguments.follow:
            print_error(f'no topic begins with "{prefix}" yet: waiting for one')
        elif not names:
            raise none_begins(self._client, prefix)
        return names

    def _feed(self, name: str) -> _Feed:
        """A position in the name of a topic wins over the flags that say where to begin."""
        given = self._arguments
        topic = self._client.topic(topic_name(name))
        for each in self._named:
            if each.name == name and not each.is_prefix and each.seq is not None:
                if each.epoch is None:
                    return _Feed(topic, given, from_seq=each.seq)
                return _Feed(topic, given, position=Position(name, each.epoch, each.seq))
        last, first = given.last, given.first or 0
        if last is None and given.verb == "tail" and given.first is None and given.since is None:
            last = TAIL
        if last is not None:
            return _Feed(topic, given, last=last)
        before = max(first - 1, 0)
        if before:
            # A position after the head would be one of another incarnation.
            before = min(before, state_of(self._client, name)["head_seq"])
        feed = _Feed(topic, given, from_seq=before)
        feed.first = first
        return feed

    def _take(self, feed: _Feed, item: Item) -> None:
        if isinstance(item, Record) and item.seq < feed.first:
            return
        # Ctrl-C waits until what is printed is also noted.
        self.interruption.begin()
        self._show(item)
        feed.printed(item)
        self.interruption.end()
        if isinstance(item, Record):
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    raise _Enough
        elif self._arguments.fail_on_loss:
            raise _LossMet

    def _from_all(self) -> Iterator[tuple[_Feed, Item]]:
        """New items of all topics: a thread follows each, and one for each prefix looks for new topics."""
        arrived: queue.Queue[tuple[_Feed, Item | None] | str | BaseException] = queue.Queue(MOST_WAITING)

        def follow(feed: _Feed) -> None:
            try:
                for item in feed.follow(apart=True):
                    arrived.put((feed, item))
                arrived.put((feed, None))
            except BaseException as error:
                arrived.put(error)

        def look(prefix: str) -> None:
            try:
                while True:
                    for name in topic_names(self._client, prefix):
                        arrived.put(name)
                    time.sleep(LOOK_S)
            except BaseException as error:
                arrived.put(error)

        def start(work: Any, given: Any) -> None:
            threading.Thread(target=work, args=(given,), daemon=True).start()

        for feed in self._feeds.values():
            start(follow, feed)
        for each in self._named:
            if each.is_prefix:
                start(look, each.name)
        while True:
            found = arrived.get()
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, tuple):
                feed, item = found
                if item is None:
                    return  # `--until` has passed
                yield feed, item
            elif found not in self._feeds:
                # It is younger than this command, so all of it is new.
                feed = self._feeds[found] = _Feed(self._client.topic(found), self._arguments)
                start(follow, feed)

    # --- going on ---------------------------------------------------------------------------------------

    def going_on(self) -> str:
        """The command that begins where this one has ended."""
        given = self._arguments
        words = ["topics", given.verb]
        waiting = False
        for each in self._named:
            if each.is_prefix:
                words.append(each.name + "*")
            elif each.name not in self._feeds:
                words.append(each.name)
                waiting = True
        for name, feed in self._feeds.items():
            at = feed.position
            waiting = waiting or at is None
            words.append(name if at is None else f"{name}@{at.seq}~{at.epoch}")
        if waiting and given.first is not None:
            words += ["--from", str(given.first)]
        elif not waiting and given.verb == "tail" and any(each.is_prefix for each in self._named):
            # A topic that comes meanwhile is younger than what was seen: all of it is to be seen.
            words += ["--from", "1"]
        words += flags_of({"--last": given.last if waiting else None})
        words += flags_of({"--since": _iso(given.since), "--until": _iso(given.until)})
        words += flags_of({"--tag": given.tag, "--format": given.format, "--limit": self._left})
        if given.follow and given.verb != "tail":
            words.append("--follow")
        if given.fail_on_loss:
            words.append("--fail-on-loss")
        return shlex.join([*words, *given_flags(given)])


def _iso(when: int | None) -> str | None:
    return None if when is None else datetime.fromtimestamp(when / 1000, UTC).isoformat()
