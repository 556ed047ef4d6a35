"""`topics read` and `topics tail`: the records of topics, with what was lost in its place among them.

A topic is a NAME, all that begin with PREFIX*, or NAME@SEQ~EPOCH: what follows this position.
"""

import argparse
import queue
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topics.cli.remote.feed import Choice, Entry, Feed, Record
from topics.cli.remote.formats import Printer, printer
from topics.cli.remote.interruption import Interruption
from topics.cli.remote.options import add_flags, given_flags, moment, natural, server_for
from topics.cli.remote.output import Output
from topics.cli.remote.server import Server, topic_path
from topics.cli.work import DONE, INTERRUPTED, LOSS, UNREACHABLE, tell
from topics.client import Refused, Unreachable
from topics.values import MAX_WATCH_TOPICS, UserMistake

TAIL = 10
# How often topics that a prefix matches are looked for, while they are followed.
LOOK_S = 1.0
# Pages that wait to be printed, while a terminal or a pipe takes its time.
MOST_WAITING = 1000


def add_parser(verbs: Any) -> None:
    for verb, text in (("read", "print the records of topics"), ("tail", "print the last ones, and follow")):
        parser = verbs.add_parser(
            verb, help=text, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
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
        parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    named = [_Named.of(text) for text in arguments.topics]
    output = Output(arguments)
    show = printer(output, arguments.format, many=len(named) > 1 or named[0].is_prefix)
    with server_for(arguments) as server:
        if arguments.follow:
            server.await_restarts()
        reader = _Reader(server, arguments, named, show)
        try:
            with reader.interruption:
                reader.run()
        except _Enough:
            pass
        except _LossMet:
            tell(f"this loss ends it; to go on behind it: {reader.going_on()}")
            return LOSS
        except (KeyboardInterrupt, Unreachable) as end:
            if isinstance(end, Unreachable):
                tell(str(end))
            tell(f"go on with: {reader.going_on()}")
            return UNREACHABLE if isinstance(end, Unreachable) else INTERRUPTED
    return DONE


class _Enough(Exception):
    """As many records as were asked for."""


class _LossMet(Exception):
    """The last thing that is to be printed was."""


@dataclass(frozen=True)
class _Named:
    """What stands for a topic, or for several, on the command line."""

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


class _Reader:
    def __init__(
        self, server: Server, arguments: argparse.Namespace, named: list[_Named], show: Printer
    ) -> None:
        self._server = server
        self._arguments = arguments
        self._named = named
        self._show = show
        self._left: int | None = arguments.limit
        last = arguments.last
        if last is None and arguments.verb == "tail" and arguments.first is None and arguments.since is None:
            last = TAIL
        self._choice = Choice(last, arguments.since, arguments.until, arguments.tag)
        self._feeds: dict[str, Feed] = {}
        self.interruption = Interruption()

    def run(self) -> None:
        if self._left == 0:
            return
        for name in self._names():
            self._feeds[name] = self._feed(name)
        if len(self._feeds) > MAX_WATCH_TOPICS and self._arguments.follow:
            raise UserMistake(f"at most {MAX_WATCH_TOPICS} topics can be followed, not {len(self._feeds)}")
        for feed in self._feeds.values():
            for entry in feed.history():
                self._take(feed, entry)
        if self._arguments.follow:
            self._follow()

    def _names(self) -> Iterator[str]:
        for each in self._named:
            if each.is_prefix:
                yield from self._names_that_begin(each.name)
                continue
            try:
                self._server.fetch("GET", topic_path(each.name) + "?touch=false")
            except Refused as refusal:
                raise self._server.missing(refusal, each.name) from None
            yield each.name

    def _names_that_begin(self, prefix: str) -> list[str]:
        """Nothing there is told: a prefix may be misspelt, and what follows waits for such a topic."""
        names = self._server.topic_names(prefix)
        if not names and self._arguments.follow:
            tell(f'no topic begins with "{prefix}" yet: waiting for one')
        elif not names:
            raise self._server.none_begins(prefix)
        return names

    def _feed(self, name: str) -> Feed:
        """A position that was named wins over where all of them are to begin."""
        for each in self._named:
            if each.name == name and not each.is_prefix and each.seq is not None:
                whole = Choice(None, self._choice.since, self._choice.until, self._choice.tag)
                return Feed(self._server, name, whole, each.seq, each.epoch)
        first: int = self._arguments.first or 0
        before = max(first - 1, 0)
        if before:
            # A position behind the head would be one of another life; a wish for what is to come is none.
            head: int = self._server.ask("GET", topic_path(name) + "?touch=false")["head_seq"]
            before = min(before, head)
        return Feed(self._server, name, self._choice, before, first=first)

    def _take(self, feed: Feed, entry: Entry) -> None:
        item = entry[0]
        if item is None:
            feed.done(entry)
            return
        # A terminal may have been paused: what is printed is also noted.
        self.interruption.begin()
        self._show(item)
        feed.done(entry)
        self.interruption.end()
        if isinstance(item, Record):
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    raise _Enough
        elif self._arguments.fail_on_loss:
            raise _LossMet

    # --- what comes -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        if len(self._feeds) == 1 and not any(each.is_prefix for each in self._named):
            (feed,) = self._feeds.values()
            entries: Iterator[tuple[Feed, Entry]] = ((feed, entry) for entry in feed.news())
        else:
            entries = self._from_all()
        until = self._arguments.until
        for feed, entry in entries:
            self._take(feed, entry)
            if until is not None and entry[0] is None and time.time() * 1000 > until:
                return

    def _from_all(self) -> Iterator[tuple[Feed, Entry]]:
        """A thread waits for each topic; one more looks for topics that a prefix matches and that are new."""
        arrived: queue.Queue[tuple[Feed, Entry] | str | BaseException] = queue.Queue(MOST_WAITING)

        def listen(feed: Feed) -> None:
            try:
                for entry in feed.news():
                    arrived.put((feed, entry))
            except BaseException as error:
                arrived.put(error)

        def look(prefix: str) -> None:
            try:
                while True:
                    for name in self._server.topic_names(prefix):
                        arrived.put(name)
                    time.sleep(LOOK_S)
            except BaseException as error:
                arrived.put(error)

        def start(work: Any, *given: Any) -> None:
            threading.Thread(target=work, args=given, daemon=True).start()

        for feed in self._feeds.values():
            start(listen, feed)
        for each in self._named:
            if each.is_prefix:
                start(look, each.name)
        while True:
            found = arrived.get()
            if isinstance(found, BaseException):
                raise found
            if not isinstance(found, str):
                yield found
            elif found not in self._feeds:
                # It is younger than this command: all of it is news.
                feed = self._feeds[found] = Feed(
                    self._server, found, Choice(None, None, None, self._choice.tag)
                )
                start(listen, feed)

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
        for feed in self._feeds.values():
            waiting = waiting or feed.epoch is None
            words.append(feed.position)
        if waiting and given.first is not None:
            words += ["--from", str(given.first)]
        elif not waiting and given.verb == "tail" and any(each.is_prefix for each in self._named):
            # A topic that comes meanwhile is younger than what was seen: all of it is to be seen.
            words += ["--from", "1"]
        if waiting and given.last is not None:
            words += ["--last", str(given.last)]
        for flag, when in (("--since", given.since), ("--until", given.until)):
            if when is not None:
                words += [flag, datetime.fromtimestamp(when / 1000, UTC).isoformat()]
        for flag, text in (("--tag", given.tag), ("--format", given.format)):
            if text is not None:
                words += [flag, text]
        if self._left is not None:
            words += ["--limit", str(self._left)]
        if given.follow and given.verb != "tail":
            words.append("--follow")
        if given.fail_on_loss:
            words.append("--fail-on-loss")
        return shlex.join([*words, *given_flags(given)])
