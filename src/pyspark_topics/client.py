"""The client of the connector: the SDK's operations and transport, for drivers and executors of Spark.

It differs from the SDK in three ways. It retries while the disk of the server is full (507), because a
pipeline waits rather than fails. It pickles as its address, so that a task connects for itself. A scan is a
file, as Arrow reads one. The API key comes from the options alone, never from the environment of an executor.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec
import pyarrow as pa

from topics.client.errors import Refused
from topics.client.operations import bulk, managing
from topics.client.wire.blocking import Blocking
from topics.client.wire.requests import Operation, address_of
from topics.client.wire.session import TRANSIENT, Json, RetryRule, Session

# A restart of the server with a large journal takes seconds; longer outages are for the operator.
PATIENCE_S = 20.0
# Long enough for the slowest single answer, short enough to notice a machine that is gone.
TIMEOUT_S = 60.0
_DISK_FULL = 507

P = ParamSpec("P")
R = TypeVar("R")


class _PatientRule(RetryRule):
    def passes(self, refused: Refused) -> bool:
        return refused.status in TRANSIENT or refused.status == _DISK_FULL


class TopicRequests(ABC):
    """Requests about topics, which go to the server that has the topic."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def at(self, topic: str) -> "Client":
        """The client of the server that has the topic."""

    # --- one topic --------------------------------------------------------------------------------------

    def topic(self, name: str) -> Json:
        """State of one topic, without counting as a reader of it."""
        return self.at(name).ask(managing.state, name)

    def scan(self, topic: str, request: Json) -> "ScanFile":
        """An Arrow IPC stream; close it if it is not read to its end."""
        client = self.at(topic)
        return ScanFile(client, client.ask(bulk.scan, topic, request))

    def segments(self, topic: str) -> Json:
        return self.at(topic).ask(bulk.segments, topic)

    def renew_segments(self, topic: str, snapshot: str) -> Json:
        return self.at(topic).ask(bulk.renew_segments, topic, snapshot)

    def release_segments(self, topic: str, snapshot: str) -> Json:
        return self.at(topic).ask(bulk.release_segments, topic, snapshot)

    def ledger(self, topic: str) -> Json:
        """All ranges of missing seqs and their reasons, of one epoch of the topic."""
        return self.at(topic).ask(bulk.ledger, topic)

    def put_cursor(self, topic: str, consumer: str, seq: int, epoch: int) -> Json:
        return self.at(topic).ask(managing.put_cursor, topic, consumer, seq, epoch)

    def delete_before(self, topic: str, seq: int) -> Json:
        """Remove everything below a seq for good."""
        return self.at(topic).ask(managing.delete, topic, {"before_seq": seq})

    def delete_tagged(self, topic: str, tag: str) -> Json:
        """Remove everything with this tag, or with tags that begin so: `user:*`."""
        return self.at(topic).ask(managing.delete, topic, {"match": tag})


class Client(TopicRequests):
    """One server. Threads and forked processes may share it."""

    # Servers that did not answer the last look, and why.
    silent: Mapping[str, str] = MappingProxyType({})

    def __init__(self, url: str, api_key: str | None = None, *, patience_s: float = PATIENCE_S) -> None:
        address = address_of(url, api_key)
        if api_key is None:
            address = msgspec.structs.replace(address, head=address.head.partition(b"Authorization:")[0])
        self.url = address.url
        self._arguments = (url, api_key, patience_s)
        self._io = Blocking(address, TIMEOUT_S)
        self._session = Session(self._io, address.url, patience_s, _PatientRule())

    def __reduce__(self) -> tuple[Any, ...]:
        return _connect, (type(self), *self._arguments)

    def close(self) -> None:
        self._io.close()

    def ask(
        self, operation: Callable[Concatenate[Session, P], Operation[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return self._io.run(operation(self._session, *args, **kwargs))

    def at(self, topic: str) -> "Client":
        return self

    def home(self, topic: str) -> str:
        """The server that the topic is known to be on: empty, because there is only one."""
        return ""

    def expect(self, homes: Mapping[str, str]) -> None:
        """Note where topics were at the last look."""

    # --- lists ------------------------------------------------------------------------------------------

    def _listed(self, pages: managing.Pages) -> Iterator[Json]:
        """All entries of a list, page by page."""
        while (page := self._io.run(pages.next_page())) is not None:
            yield from page

    def topic_names(self) -> Iterator[str]:
        return (entry["topic"] for entry in self._listed(managing.topics(self._session)))

    def described(self) -> Iterator[Json]:
        """Every topic with its epoch and the lines of its records."""
        return self._listed(managing.topics(self._session, detail="true"))

    def states(self, names: Iterable[str] | None, *, patient: bool = True) -> dict[str, Json]:
        """Topics as they are now, of these names or all; a topic that does not exist is left out."""
        found = {}
        for name in self.topic_names() if names is None else names:
            try:
                found[name] = self.topic(name)
            except Refused as refusal:
                if refusal.code != "topic_not_found":
                    raise
        return found

    def routers(self) -> Iterator[Json]:
        """Every router with all its settings."""
        return (
            self.ask(managing.router, entry["router"])
            for entry in self._listed(managing.routers(self._session))
        )

    # --- stages, pipelines and purges -------------------------------------------------------------------

    def stage_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> list[str]:
        """Put rows into a stage, those that name no topic into `topic`. Returns the names for the commit."""
        self.ask(bulk.put_part, stage, part, arrow_stream, topic)
        return [part]

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> Json:
        return self.ask(bulk.commit_stage, stage, identity, batch, parts)

    def drop_stage(self, stage: str) -> None:
        self.ask(bulk.drop_stage, stage)

    def put_pipeline(self, pipeline: str, kind: str, state: str, why: str | None = None) -> None:
        """Report that a pipeline runs, is done, was stopped, or has failed."""
        self.ask(managing.put_pipeline, pipeline, {"kind": kind, "state": state, "why": why})

    def start_purge(self, topics: list[str] | None = None) -> Json:
        """Begin to remove the bytes of what is deleted; `purge` returns how far it is."""
        return self.ask(managing.start_purge, topics)

    def purge(self, purge_id: str) -> Json:
        return self.ask(managing.purge, purge_id)


def _connect(kind: type[Client], url: str, api_key: str | None, patience_s: float) -> Client:
    return kind(url, api_key, patience_s=patience_s)


def arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


class ScanFile(io.RawIOBase):
    """The body of a scan as a file. A connection that breaks looks like its end: Arrow misses the rest."""

    def __init__(self, client: Client, stream: Any) -> None:
        self._client = client
        self._stream = stream
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        pieces: list[memoryview] = []
        have = 0
        while size < 0 or have < size:
            if not self._rest:
                self._rest = memoryview(self._more())
                if not self._rest:
                    break
            piece = self._rest if size < 0 else self._rest[: size - have]
            self._rest = self._rest[len(piece) :]
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def _more(self) -> bytes:
        data = self._client.ask(bulk.receive, self._stream, TIMEOUT_S)
        if data is None:
            raise TimeoutError(f"the server was silent for {TIMEOUT_S:.0f} s in the middle of a scan")
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
