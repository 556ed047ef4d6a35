"""Several servers that are read and written as one: `url` = `http://a:4000,http://b:4000`.

Each topic is on one server, and each request goes to the server of its topic. Offsets name the server,
because every server counts epochs on its own. `ServerProbe` asks all servers at once; a server that does not
answer delays nobody.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa

from pyspark_topics.client import Client, TopicRequests, arrow_stream
from pyspark_topics.errors import OptionError
from topics.client import Refused, TopicsError, Unreachable
from topics.client.wire.session import TRANSIENT, Json
from topics.core.names import is_topic_name

# A server that takes longer is busy with something else, or its machine has vanished.
LATE_S = 2.0
Question = Callable[[], Any]


class ServerProbe:
    """Questions to servers by their address, at most one to each at a time."""

    def __init__(self) -> None:
        self._under_way: dict[str, Future[Any]] = {}

    def is_asking(self, url: str) -> bool:
        return url in self._under_way and not self._under_way[url].done()

    def ask(
        self, questions: Mapping[str, Question], *, patient: bool
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Answers, and of the servers that gave none, why. With `patient`, those are an error."""
        asked = {}
        for url, question in questions.items():
            if patient or not self.is_asking(url):
                asked[url] = self._under_way[url] = _started(question)
        silent = dict.fromkeys(questions.keys() - asked.keys(), "still no answer")
        late = wait(asked.values(), None if patient else LATE_S).not_done
        answers = {}
        for url, one in asked.items():
            if one in late:
                silent[url] = f"no answer within {LATE_S:.0f} s"
                continue
            error = one.exception()
            if error is None:
                answers[url] = one.result()
            elif not patient and (
                isinstance(error, Unreachable) or (isinstance(error, Refused) and error.status in TRANSIENT)
            ):
                silent[url] = str(error)
            else:
                raise _at(url, error)
        return answers, silent


def _started(question: Question) -> "Future[Any]":
    """Ask on a daemon thread: a question that hangs must not keep a program alive."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(question())
        except Exception as error:  # raised where the answer is wanted
            future.set_exception(error)

    threading.Thread(target=run, name="topics-look", daemon=True).start()
    return future


def _at(url: str, error: BaseException) -> BaseException:
    """Add the address of the server to an error."""
    if isinstance(error, Refused):
        return Refused(error.status, error.code, f"{error.message} (at {url})", error.detail)
    return error if isinstance(error, TopicsError) else Unreachable(f"asking {url} failed: {error}")


# Up to so many topics are asked for one by one, more by the server's list.
FEW = 20
# Where a topic is known to be, others are asked about it this often: they may have got one of that name.
CHECK_EVERY_S = 60.0
# How the server begins what it says of a row.
_ROW = re.compile(r"row (\d+): (.*)", re.DOTALL)
# In the name of a part, between the server it is at and its name there.
_AT = " "


class Servers(TopicRequests):
    """Not for several threads at once. Pickles as its addresses, and where topics are."""

    def __init__(self, urls: Iterable[str], api_key: str | None, *, patience_s: float) -> None:
        self._key, self._patience_s = api_key, patience_s
        self._clients = {one.url: one for one in (self._client(url, patience_s) for url in urls)}
        self._first = next(iter(self._clients))
        self._homes: dict[str, str] = {}
        self._checked = -CHECK_EVERY_S
        # Servers that did not answer the last look, and why.
        self.silent: dict[str, str] = {}
        self._probe = ServerProbe()
        # For looks that wait for nobody; of their own, because one may still be under way.
        self._quick = {url: self._client(url, 0.0) for url in self._clients}

    def _client(self, url: str, patience_s: float) -> Client:
        return Client(url, self._key, patience_s=patience_s)

    def __reduce__(self) -> tuple[Any, ...]:
        connect = partial(type(self), patience_s=self._patience_s)
        return connect, (tuple(self._clients), self._key), {"_homes": self._homes, "_checked": self._checked}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for url, client in self._quick.items():
            if not self._probe.is_asking(url):  # else its thread does, when it has its answer
                client.close()

    # --- which server -----------------------------------------------------------------------------------

    def home(self, topic: str) -> str:
        return self._homes.get(topic, "")

    def expect(self, homes: Mapping[str, str]) -> None:
        for topic, url in homes.items():
            if url in self._clients:
                self._homes.setdefault(topic, url)

    def states(self, names: Iterable[str] | None, *, patient: bool = True) -> dict[str, Json]:
        """Topics as they are now, those of these names or all.

        Nobody waits for a server that is silent; but the patient do, if it may have one that is missing.
        """
        self.silent = {}
        wanted = None if names is None else list(dict.fromkeys(names))
        found = {} if wanted is None else self._at_home(wanted)
        silent = self.silent
        # Without topics on a server that is silent, as far as anybody knows.
        rest = (
            None if wanted is None else [n for n in wanted if n not in found and self.home(n) not in silent]
        )
        if rest is None or rest:
            found |= self._look(dict.fromkeys(self._clients, rest), patient=False)
            self.silent = silent | self.silent
        if patient and self.silent and (wanted is None or any(name not in found for name in wanted)):
            late = None if wanted is None else [name for name in wanted if name not in found]
            found |= self._look(dict.fromkeys(self.silent, late), patient=True)
        return found

    def _at_home(self, wanted: list[str]) -> dict[str, Json]:
        """Return the topics that are on the server where they were; from time to time, ask all servers."""
        now = time.monotonic()
        if now - self._checked >= CHECK_EVERY_S:
            self._checked = now
            return {}
        known: dict[str, list[str] | None] = {
            url: [name for name in wanted if self.home(name) == url] for url in self._clients
        }
        return self._look(known, patient=False)

    def _look(self, wanted: Mapping[str, list[str] | None], *, patient: bool) -> dict[str, Json]:
        """Ask servers for these topics, or for all; also record which server has each topic."""
        asked = {url: names for url, names in wanted.items() if names is None or names}
        clients = {url: self._client(url, self._patience_s) for url in asked} if patient else self._quick
        questions = {url: partial(_states, clients[url], names) for url, names in asked.items()}
        try:
            answers, self.silent = self._probe.ask(questions, patient=patient)
        finally:
            if patient:
                for client in clients.values():
                    client.close()
        found: dict[str, Json] = {}
        for url in (url for url in self._clients if url in answers):
            self._learn(url, wanted[url], answers[url], found)
        return found

    def _learn(self, url: str, wanted: list[str] | None, states: list[Json], found: dict[str, Json]) -> None:
        for state in states:
            name = state["topic"]
            if name in found:
                raise OptionError(
                    f'topic "{name}" is on {self._homes[name]} and on {url}, and has to be on one of them: '
                    "delete it on the other, or give a url without that server"
                )
            found[name], self._homes[name] = state, url
        for name in list(self._homes) if wanted is None else wanted:
            if name not in found and self.home(name) == url:
                del self._homes[name]

    def at(self, topic: str) -> Client:
        if topic not in self._homes and topic not in self.states([topic]):
            raise Refused(404, "topic_not_found", f"topic {topic} is on none of {', '.join(self._clients)}")
        return self._clients[self._homes[topic]]

    def _for_writing(self, topic: str) -> str:
        """A topic that is on none of them is made on the first."""
        if topic not in self._homes and is_topic_name(topic):  # what is none the server refuses, row by row
            self.states([topic])
        return self._homes.get(topic, self._first)

    # --- all servers ------------------------------------------------------------------------------------

    def topic_names(self) -> Iterator[str]:
        return iter(self.states(None))

    def routers(self) -> Iterator[Json]:
        return chain.from_iterable(client.routers() for client in self._clients.values())

    # --- stages -----------------------------------------------------------------------------------------

    def stage_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> list[str]:
        """A part at every server that has topics of these rows."""
        placed = []
        for url, (stream, rows) in self._shared_out(arrow_stream, topic).items():
            try:
                self._clients[url].stage_part(stage, part, stream, topic)
            except Refused as refusal:
                raise _of_whole(refusal, rows) from None
            placed.append(f"{url}{_AT}{part}")
        return placed

    def _shared_out(self, stream: bytes, topic: str | None) -> dict[str, tuple[bytes, list[int] | None]]:
        """Split rows by the server of their topic, with their row numbers; None for all rows."""
        table = pa.ipc.open_stream(stream).read_all()
        if "topic" not in table.schema.names:
            return {self._for_writing(topic or ""): (stream, None)}
        targets = [name or topic or "" for name in table["topic"].to_pylist()]
        homes = {name: self._for_writing(name) for name in dict.fromkeys(targets)}
        if len(set(homes.values())) == 1:
            return {next(iter(homes.values())): (stream, None)}
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(targets):
            rows.setdefault(homes[name], []).append(row)
        return {url: (arrow_stream(table.take(mine)), mine) for url, mine in rows.items()}

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> Json:
        """At each server by itself, where it counts once. The first notes every batch, also an empty one."""
        by_server: dict[str, list[str]] = {self._first: []}
        for url, _, name in (part.rpartition(_AT) for part in parts):
            by_server.setdefault(url, []).append(name)
        answers = [
            self._clients[url].commit_stage(stage, identity, batch, names) for url, names in by_server.items()
        ]
        return answers[0]

    def drop_stage(self, stage: str) -> None:
        failed: TopicsError | None = None
        for client in self._clients.values():
            try:
                client.drop_stage(stage)
            except TopicsError as error:
                failed = error
        if failed is not None:
            raise failed

    # --- operations -------------------------------------------------------------------------------------

    def start_purge(self, topics: list[str] | None = None) -> Json:
        mine: dict[str, list[str] | None] = {}
        for url in self._clients:
            mine[url] = None if topics is None else [one for one in topics if self.at(one).url == url]
        chosen = {url: names for url, names in mine.items() if names is None or names}
        return _together({url: self._clients[url].start_purge(names) for url, names in chosen.items()})

    def purge(self, purge_id: str) -> Json:
        ids: dict[str, str] = json.loads(purge_id)
        return _together({url: self._clients[url].purge(one) for url, one in ids.items()})


# One server or several: a request about a topic goes to the server that has it.
TopicsClient: TypeAlias = Client | Servers


def _states(client: Client, names: list[str] | None) -> list[Json]:
    if names is not None and len(names) <= FEW:
        return list(client.states(names).values())
    wanted = None if names is None else set(names)
    return [state for state in client.described() if wanted is None or state["topic"] in wanted]


def _of_whole(refusal: Refused, rows: list[int] | None) -> Refused:
    """About a row of the whole part, not of the share that this server got."""
    said = _ROW.match(refusal.message)
    if rows is None or said is None or int(said[1]) >= len(rows):
        return refusal
    message = f"row {rows[int(said[1])]}: {said[2]}"
    return Refused(refusal.status, refusal.code, message, refusal.detail)


def _together(purges: Mapping[str, Json]) -> Json:
    """Several purges as one: done when all are, failed when one is."""
    states = list(purges.values())
    unfinished = [one for one in states if one["state"] not in ("done", "failed")]
    failed = [one for one in states if one["state"] == "failed"]
    shown = (failed or unfinished or states or [{"state": "done", "phase": "", "error": None}])[0]
    counts = ("files_held", "files_rewritten", "records", "segment_bytes", "journal_bytes")
    sums = {name: sum(one.get(name, 0) for one in states) for name in counts}
    return {**shown, **sums, "purge": json.dumps({url: one["purge"] for url, one in purges.items()})}
