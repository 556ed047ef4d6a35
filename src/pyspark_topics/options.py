"""What users write in `.option(...)`, checked once and turned into values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TypeVar

from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import Bound, parse_bound
from topics.client import Client
from topics.client.connection import PATIENCE_S
from topics.values.names import is_topic_name

T = TypeVar("T")

COMMON = ("url", "apiKey", "patience")
READ = (
    *COMMON,
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "columns",
    "includeMeta",
    "node",
    "tag",
    "loss",
    "pushdown",
    "consumer",
    "direct",
)
WRITE = (*COMMON, "topic")
# Spark hands these to a sink along with its own options.
SPARKS_OWN = ("checkpointLocation", "queryName")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "pushdown")
STREAM_ONLY = ("maxOffsetsPerTrigger", "consumer")

LOSS = ("rows", "fail", "ignore")
DIRECT = ("auto", "never")
# The end of the year 9999, as far as dates go.
LAST_MS = 253_402_300_799_999


@dataclass(frozen=True)
class Server:
    url: str
    api_key: str | None = None
    # How long to wait for a server that does not answer.
    patience_s: float = PATIENCE_S

    def client(self) -> Client:
        return Client(self.url, self.api_key, patience_s=self.patience_s)

    @property
    def options(self) -> dict[str, str]:
        """As options of the source and the sink."""
        return {"url": self.url, **({} if self.api_key is None else {"apiKey": self.api_key})}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    server: Server
    topics: tuple[str, ...]
    pattern: str | None
    starting: Bound
    ending: Bound
    starting_ts: int | None
    ending_ts: int | None
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...] | None
    include_meta: bool
    nodes: tuple[str, ...]
    tag: str | None
    loss: str
    pushdown: bool
    consumer: str | None
    direct: bool


@dataclass(frozen=True)
class WriteOptions:
    server: Server
    # The target of all rows; without it, each row names its own.
    topic: str | None


class _Reader:
    """Takes options one by one, by the name the user knows."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...], verb: str) -> None:
        known = {name.lower(): name for name in (*allowed, *SPARKS_OWN)}
        # The real options object ignores case; a plain dict in a test should, too.
        self._values = {key.lower(): value for key, value in options.items()}
        for key in self._values:
            if key not in known:
                raise OptionError(_unknown(key, allowed, verb))

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise OptionError(f'option "{name}" is empty')
        return value

    def server(self) -> Server:
        url = self.text("url")
        if url is None:
            raise OptionError('option "url" is missing, for example .option("url", "http://127.0.0.1:4000")')
        return Server(url, self.text("apiKey"), self.parsed("patience", _seconds) or PATIENCE_S)

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise OptionError(f'option "{name}" is "{value}", but {error}') from None

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """One of a few words, the first being the default."""
        return self.parsed(name, lambda text: _one_of(text, words)) or words[0]

    def flag(self, name: str, default: bool) -> bool:
        word = self.parsed(name, lambda text: _one_of(text, ("true", "false")))
        return default if word is None else word == "true"


def _unknown(key: str, allowed: tuple[str, ...], verb: str) -> str:
    close = get_close_matches(key, [name.lower() for name in allowed], 1)
    names = {name.lower(): name for name in allowed}
    hint = f', did you mean "{names[close[0]]}"' if close else ""
    return f'topics has no option "{key}" for a {verb}{hint}; it knows: {", ".join(allowed)}'


def _one_of(text: str, words: tuple[str, ...]) -> str:
    if text.strip().lower() not in words:
        raise ValueError(f"it has to be {' or '.join(words)}")
    return text.strip().lower()


def _positive(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and int(text)):
        raise ValueError("it has to be a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("it has to be a number of seconds above 0")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("it names nothing")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None
    return text


def _consumer(text: str) -> str:
    if not is_topic_name(text):
        raise ValueError("it has to be a name like that of a topic: letters, digits and . _ : -")
    return text


def _nodes(text: str) -> tuple[str, ...]:
    """One name, or a JSON list where a name has a comma or several are meant."""
    if not text.lstrip().startswith("["):
        return (text,)
    try:
        nodes = json.loads(text)
    except ValueError:
        nodes = None
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ValueError('it has to be one name or a JSON list of names, like ["a", "b"]')
    return tuple(nodes)


def parse_timestamp(text: str) -> int:
    """Unix milliseconds, given as such or as ISO 8601; without an offset that means UTC."""
    if text.strip().isascii() and text.strip().isdecimal():
        return _moment(int(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("it has to be Unix milliseconds or a time like 2026-01-31T09:30:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _moment(int(moment.timestamp() * 1000))


def _moment(ms: int) -> int:
    """As the server takes it: nothing is older than its first millisecond."""
    if ms > LAST_MS:
        raise ValueError("that is later than any record can be")
    return max(ms, 0)


def parse_read(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """`streaming` is None where Spark asks for the schema and does not say yet for what."""
    reader = _Reader(options, READ, "read")
    if streaming is not None:
        _check_kind(reader, streaming)
    topics = reader.parsed("subscribe", _names)
    pattern = reader.parsed("subscribePattern", _pattern)
    if (topics is None) == (pattern is None):
        raise OptionError('give either option "subscribe" (topic names) or "subscribePattern" (a pattern)')
    for edge in ("starting", "ending"):
        if reader.has(f"{edge}Offsets") and reader.has(f"{edge}Timestamp"):
            raise OptionError(f'give either option "{edge}Offsets" or "{edge}Timestamp", not both')
    return ReadOptions(
        server=reader.server(),
        topics=topics or (),
        pattern=pattern,
        starting=reader.parsed("startingOffsets", parse_bound)
        or parse_bound("latest" if streaming else "earliest"),
        ending=reader.parsed("endingOffsets", _parse_ending) or parse_bound("latest"),
        starting_ts=reader.parsed("startingTimestamp", parse_timestamp),
        ending_ts=reader.parsed("endingTimestamp", parse_timestamp),
        max_offsets_per_trigger=reader.parsed("maxOffsetsPerTrigger", _positive),
        min_partitions=reader.parsed("minPartitions", _positive),
        max_records_per_partition=reader.parsed("maxRecordsPerPartition", _positive),
        columns=reader.parsed("columns", _names),
        include_meta=reader.flag("includeMeta", True),
        nodes=reader.parsed("node", _nodes) or (),
        tag=reader.text("tag"),
        loss=reader.word("loss", LOSS),
        pushdown=reader.flag("pushdown", False),
        consumer=reader.parsed("consumer", _consumer),
        direct=reader.word("direct", DIRECT) == "auto",
    )


def _check_kind(reader: _Reader, streaming: bool) -> None:
    kind, other = ("streaming", "batch") if streaming else ("batch", "streaming")
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if reader.has(name):
            raise OptionError(f'option "{name}" is for {other} reads, and this is a {kind} read')


def _parse_ending(text: str) -> Bound:
    bound = parse_bound(text)
    if bound.word == "earliest":
        raise ValueError('it has to be "latest" or JSON like {"orders": 41}')
    return bound


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    reader = _Reader(options, WRITE, "write")
    return WriteOptions(reader.server(), reader.text("topic"))
