"""What users write in `.option(...)`, checked once and turned into values."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from pyspark_topics.client import PATIENCE_S, Client
from pyspark_topics.errors import OptionError, did_you_mean
from pyspark_topics.offsets import Bound, parse_bound
from pyspark_topics.servers import Servers, TopicsClient
from topics.core.names import is_topic_name

# Spark hands these to a sink along with its own options.
SPARKS_OWN = ("checkpointLocation", "queryName")
# What a table that was made by CREATE TABLE hands over, instead of the options it was made with.
OF_CREATE_TABLE = "provider"
NOT_IN_SQL = (
    "Spark does not hand the options of CREATE TABLE … USING topics to a source in Python: use "
    'pyspark_topics.attach(spark, url) for SELECT, and df.write.format("topics") for INSERT'
)
# What INSERT hands over of a view: it was made to be read.
OF_VIEWS = ("subscribe", "subscribepattern")
INTO_A_VIEW = (
    "A view of a topic, as pyspark_topics.attach makes it, is not written to by INSERT: use "
    'df.write.format("topics") with option "topic"'
)
# Options of delta-rs for the table of an archive begin so.
STORAGE = "storage."
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "consumer")
# So long fewer records than `minOffsetsPerTrigger` wait, unless told otherwise; as with Spark's for Kafka.
MAX_TRIGGER_DELAY_S = 15 * 60.0
# The end of the year 9999, as far as dates go.
LAST_MS = 253_402_300_799_999


@dataclass(frozen=True)
class ServerOptions:
    # One address, or several with commas between them.
    url: str
    api_key: str | None = None
    # How long to wait for a server that does not answer.
    patience_s: float = PATIENCE_S

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.strip().rstrip("/") for one in self.url.split(",") if one.strip()))

    def client(self) -> TopicsClient:
        if len(self.urls) > 1:
            return Servers(self.urls, self.api_key, patience_s=self.patience_s)
        return Client(self.urls[0] if self.urls else self.url, self.api_key, patience_s=self.patience_s)

    @property
    def options(self) -> dict[str, str]:
        """The server as options of the source and the sink."""
        return {"url": self.url, **({} if self.api_key is None else {"apiKey": self.api_key})}


class _OptionReader:
    """Takes options one by one, by the name the user knows."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...], verb: str) -> None:
        known = {name.lower(): name for name in (*allowed, *SPARKS_OWN)}
        # The real options object ignores case; a plain dict in a test should, too.
        self._values = {key.lower(): value for key, value in options.items()}
        if OF_CREATE_TABLE in self._values:
            raise OptionError(NOT_IN_SQL)
        self.storage = {
            key.removeprefix(STORAGE): value for key, value in self._values.items() if key.startswith(STORAGE)
        }
        for key in self._values:
            if key not in known and not (key.startswith(STORAGE) and "archive" in known):
                raise OptionError(_unknown(key, allowed, verb))

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def server(self) -> ServerOptions:
        url = self.parsed("url", str)
        if url is None:
            raise self.lacks('option "url" is missing, for example .option("url", "http://127.0.0.1:4000")')
        return ServerOptions(url, self.parsed("apiKey", str), self.parsed("patience", _seconds, PATIENCE_S))

    def lacks(self, what: str) -> OptionError:
        """Without any option it may be a table made with columns: Spark makes that without asking."""
        return OptionError(what if self._values else f"{what}. {NOT_IN_SQL}")

    def parsed(self, name: str, parse: Callable[[str], Any], default: object = None) -> Any:
        value = self._values.get(name.lower())
        if value is None:
            return default
        if not value.strip():
            raise OptionError(f'option "{name}" is empty')
        try:
            return parse(value)
        except ValueError as error:
            raise OptionError(f'option "{name}" is "{value}", but {error}') from None


def _unknown(key: str, allowed: tuple[str, ...], verb: str) -> str:
    hint = did_you_mean(key, allowed)
    return f'topics has no option "{key}" for a {verb}{hint}; it knows: {", ".join(allowed)}'


def _word(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f"it has to be {' or '.join(words)}")
        return text.strip().lower()

    return parse


def _flag(yes: str, no: str) -> Callable[[str], bool]:
    return lambda text: _word(yes, no)(text) == yes


def _positive(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and int(text)):
        raise ValueError("it has to be a whole number above 0")
    return int(text)


def _version(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise ValueError("it has to be a whole number, such as the id that foreachBatch gives")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("it has to be a number of seconds above 0")
    return seconds


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(text: str) -> float:
    """In seconds, from what Spark's options take: 500ms, 30s, 15m, 2h."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in ("", *_UNITS_S):
        raise ValueError("it has to be a time like 500ms, 30s, 15m or 2h")
    return int(found[1]) * _UNITS_S[found[2] or "ms"]


def _times(text: str) -> dict[str, int]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not {*map(type, given.values())} <= {int, str}:
        raise ValueError('it has to be JSON like {"orders": 1767225600000}, or with times in ISO 8601')
    return {topic: parse_timestamp(str(value)) for topic, value in given.items()}


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
    """Clamp a time to what the server accepts."""
    if ms > LAST_MS:
        raise ValueError("that is later than any record can be")
    return max(ms, 0)


def _parse_ending(text: str) -> Bound:
    bound = parse_bound(text)
    if bound.word == "earliest":
        raise ValueError('it has to be "latest" or JSON like {"orders": 41}')
    return bound


def _option(name: str, parse: Callable[[str], Any], default: object = None) -> Any:
    """Define an option: its name, its parser, and its default."""
    return field(metadata={"name": name, "parse": parse, "default": default})


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    server: ServerOptions
    topics: tuple[str, ...] = _option("subscribe", _names, ())
    pattern: str | None = _option("subscribePattern", _pattern)
    # Where a read begins unless it is told: a stream at the end, everything else at the beginning.
    starting: Bound = _option("startingOffsets", parse_bound)  # noqa: RUF009 - it makes a field
    ending: Bound = _option("endingOffsets", _parse_ending, Bound("latest"))  # noqa: RUF009
    starting_ts: int | None = _option("startingTimestamp", parse_timestamp)
    ending_ts: int | None = _option("endingTimestamp", parse_timestamp)
    starting_times: dict[str, int] | None = _option("startingOffsetsByTimestamp", _times)  # noqa: RUF009
    ending_times: dict[str, int] | None = _option("endingOffsetsByTimestamp", _times)  # noqa: RUF009
    # What to do where no record is as late as that; unless told, an error where a time was given by topic.
    none_since: str | None = _option("startingOffsetsByTimestampStrategy", _word("error", "latest"))
    max_offsets_per_trigger: int | None = _option("maxOffsetsPerTrigger", _positive)
    min_offsets_per_trigger: int | None = _option("minOffsetsPerTrigger", _positive)
    max_trigger_delay_s: float = _option("maxTriggerDelay", _duration, MAX_TRIGGER_DELAY_S)
    min_partitions: int | None = _option("minPartitions", _positive)
    max_records_per_partition: int | None = _option("maxRecordsPerPartition", _positive)
    columns: tuple[str, ...] | None = _option("columns", _names)
    include_meta: bool = _option("includeMeta", _flag("true", "false"), True)
    nodes: tuple[str, ...] = _option("node", _nodes, ())
    tag: str | None = _option("tag", str)
    loss: str = _option("loss", _word("rows", "fail", "ignore"), "rows")
    pushdown: bool = _option("pushdown", _flag("true", "false"), False)
    consumer: str | None = _option("consumer", _consumer)
    direct: bool = _option("direct", _flag("auto", "never"), True)
    # The table of an archive, from which comes what is gone from the log; and how to reach it.
    archive: str | None = _option("archive", str)
    storage: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class WriteOptions:
    server: ServerOptions
    # The target of all rows; without it, each row names its own.
    topic: str | None
    # Name and number of a batch that is to be written once.
    txn: tuple[str, int] | None = None


_COMMON = ("url", "apiKey", "patience")
_READ = {one.name: one.metadata for one in fields(SourceOptions) if one.metadata}
READ = (*_COMMON, *(one["name"] for one in _READ.values()))
WRITE = (*_COMMON, "topic", "txnAppId", "txnVersion")


def parse_read(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """`streaming` is None where Spark asks for the schema and does not say yet for what."""
    reader = _OptionReader(options, READ, "read")
    kind, other = ("streaming", "batch") if streaming else ("batch", "streaming")
    for name in () if streaming is None else BATCH_ONLY if streaming else STREAM_ONLY:
        if reader.has(name):
            raise OptionError(f'option "{name}" is for {other} reads, and this is a {kind} read')
    if reader.has("subscribe") == reader.has("subscribePattern"):
        raise reader.lacks('give either option "subscribe" (topic names) or "subscribePattern" (a pattern)')
    for edge in ("starting", "ending"):
        given_names = [f"{edge}{how}" for how in _HOW if reader.has(f"{edge}{how}")]
        if len(given_names) > 1:
            raise OptionError(f'give either option "{given_names[0]}" or "{given_names[1]}", not both')
    _check_trigger(reader)
    server = reader.server()
    given = {attribute: reader.parsed(**how) for attribute, how in _READ.items()}
    given["storage"] = _storage(reader)
    given["starting"] = given["starting"] or Bound("latest" if streaming else "earliest")
    return SourceOptions(server=server, **given)


def _storage(reader: _OptionReader) -> dict[str, str]:
    if not reader.has("archive"):
        if reader.storage:
            name = f"{STORAGE}{next(iter(reader.storage))}"
            raise OptionError(f'option "{name}" is about "archive": give that, too')
        return {}
    for edge in ("starting", "ending"):
        for how in _HOW[1:]:
            if reader.has(f"{edge}{how}"):
                raise OptionError(
                    f'option "{edge}{how}" looks at the log alone: with "archive", give '
                    f'"{edge}Offsets", and filter by ts'
                )
    return reader.storage


# An end of a read can be given in one of these ways.
_HOW = ("Offsets", "Timestamp", "OffsetsByTimestamp")


def _check_trigger(reader: _OptionReader) -> None:
    if reader.has("maxTriggerDelay") and not reader.has("minOffsetsPerTrigger"):
        raise OptionError(
            'option "maxTriggerDelay" says how long to wait for "minOffsetsPerTrigger": give that'
        )
    least, most = (reader.parsed(f"{end}OffsetsPerTrigger", _positive) for end in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise OptionError('option "minOffsetsPerTrigger" is above "maxOffsetsPerTrigger"')


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    for key in options:
        if key.lower() in OF_VIEWS:
            raise OptionError(f"{_unknown(key, WRITE, 'write')}. {INTO_A_VIEW}")
    reader = _OptionReader(options, WRITE, "write")
    name, version = reader.parsed("txnAppId", str), reader.parsed("txnVersion", _version)
    if (name is None) != (version is None):
        raise OptionError('options "txnAppId" and "txnVersion" go together: the version numbers the batches')
    txn = None if name is None else (name, version)
    return WriteOptions(reader.server(), reader.parsed("topic", str), txn)


def source_options(
    server: ServerOptions, topics: list[str], pattern: str | None, **more: str
) -> dict[str, str]:
    """Options of the Spark source for a choice of topics."""
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": pattern or ""}
    return {**server.options, **chosen, **more}
