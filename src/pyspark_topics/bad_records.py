"""Rows that cannot become records, written to a topic of their own with the reason.

    {"data": {"kind": "error", "pipeline": "big", "reason": "…", "topic": "orders", "seq": 7, "row": …},
     "tag": "error"}

`topic` and `seq` name the record that does not fit a schema. Both are NULL for a row that a query made.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.loss import TOMBSTONE_BEGINNING, TOMBSTONE_TAG
from pyspark_topics.offsets import ORIGIN, StreamOffset
from pyspark_topics.options import ServerOptions, parse_read, source_options
from pyspark_topics.partitions import SeqRange
from pyspark_topics.payload import MALFORMED, parse_data
from pyspark_topics.servers import TopicsClient
from pyspark_topics.subscription import subscribed
from topics.core.names import is_topic_name
from topics.core.record_fields import FIELDS
from topics.core.settings import MAX_META_BYTES, MAX_META_KEYS, MAX_RECORD_BYTES

TAG = "error"
KIND = "error"
# Of a row that is longer the beginning is kept: escaped, it has to be a record in any case.
KEPT_CHARACTERS = 150_000
# How the reason ends of a row without its data or its target.
IS_NULL = "is NULL"


@dataclass(frozen=True)
class BadRecords:
    """The topic for rows that cannot become records, and the pipeline that writes them."""

    into: str
    pipeline: str

    def records(self, found: list[tuple[str, Any]]) -> pa.RecordBatch:
        """Return a record for each row: the reason and the row itself, or its beginning."""
        texts = [self.text(reason, None, None, row) for reason, row in found]
        return pa.RecordBatch.from_pydict({"data": texts, "tag": [TAG] * len(texts)})

    def text(self, reason: str, topic: str | None, seq: int | None, row: Any) -> str:
        record = {
            "kind": KIND,
            "pipeline": self.pipeline,
            "reason": reason,
            "topic": topic,
            "seq": seq,
            "row": row,
        }
        text = msgspec.json.encode(record, enc_hook=str).decode()
        if len(text) > KEPT_CHARACTERS and not isinstance(row, str):
            whole = msgspec.json.encode(row, enc_hook=str).decode()
            return self.text(reason, topic, seq, whole[:KEPT_CHARACTERS])
        return text


def wrong(batch: pa.RecordBatch, has_target: bool) -> dict[int, str]:
    """Rows that the server would not take as records, with what is wrong; values are JSON text already."""
    columns = [batch.column(name).to_pylist() for name in batch.schema.names]
    found = {}
    for number, values in enumerate(zip(*columns, strict=True)):
        why = _why(dict(zip(batch.schema.names, values, strict=True)), has_target)
        if why is not None:
            found[number] = why
    return found


def _why(row: dict[str, str | None], has_target: bool) -> str | None:
    data, meta = row["data"], row.get("meta")
    if data is None:
        return f"data {IS_NULL}"
    why = None if has_target else _no_target(row["topic"])
    return why or _no_json("data", data) or _no_meta(meta) or _too_long(row, data, meta)


def _no_target(name: str | None) -> str | None:
    if name is None:
        return f"topic {IS_NULL}"
    return None if is_topic_name(name) else f'a topic cannot be called "{name}"'


def _no_json(name: str, text: str) -> str | None:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"{name} is not valid JSON: {error}"
    return None


def _no_meta(text: str | None) -> str | None:
    why = None if text is None else _no_json("meta", text)
    if text is None or text.strip() == "null" or why is not None:
        return why
    if not text.lstrip().startswith("{"):
        return "meta is no object"
    keys = len(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    return f"meta has {keys} keys, and {MAX_META_KEYS} are allowed" if keys > MAX_META_KEYS else None


def _too_long(row: dict[str, str | None], data: str, meta: str | None) -> str | None:
    for name, most in ((field.name, field.max_bytes) for field in FIELDS):
        if len((row.get(name) or "").encode()) > most:
            return f"{name} has more than {most} bytes"
    # Blanks between tokens do not count, and there are few texts so long that it matters.
    meta_bytes = _compact(meta or "", MAX_META_BYTES)
    if meta_bytes > MAX_META_BYTES:
        return f"meta has more than {MAX_META_BYTES} bytes"
    if _compact(data, MAX_RECORD_BYTES - MAX_META_BYTES) + meta_bytes > MAX_RECORD_BYTES:
        return f"data and meta together have more than {MAX_RECORD_BYTES} bytes"
    return None


def _compact(text: str, enough: int) -> int:
    """Its bytes, without blanks between tokens if there are more than `enough`."""
    size = len(text.encode())
    return size if size <= enough else len(msgspec.json.format(text, indent=-1).encode())


def records_against_schema(
    spark: SparkSession,
    client: TopicsClient,
    server: ServerOptions,
    schema: str,
    ranges: list[SeqRange],
    bad_records: BadRecords,
) -> DataFrame | None:
    """Return a record for each record of these ranges that does not fit; None if nothing can be read."""
    ends = _ends(client, server, ranges)
    if not ends:
        return None
    options = source_options(
        server,
        list(ends),
        None,
        startingOffsets=json.dumps({topic: start._asdict() for topic, (start, _) in ends.items()}),
        endingOffsets=json.dumps({topic: end._asdict() for topic, (_, end) in ends.items()}),
        loss="ignore",
        columns="topic,seq,tag,data",
    )
    records = spark.read.format("topics").options(**options).load()
    # What a route further up announced is no record of this kind.
    handed_on = (f.col("tag") == TOMBSTONE_TAG) & f.col("data").startswith(TOMBSTONE_BEGINNING)
    parsed = parse_data(records.where(~f.coalesce(handed_on, f.lit(False))), schema)
    fields = {
        "kind": f.lit(KIND),
        "pipeline": f.lit(bad_records.pipeline),
        "reason": f.lit(f"it does not fit the schema: {schema}"),
        "topic": f.col("topic"),
        "seq": f.col("seq"),
        "row": f.substring(MALFORMED, 1, KEPT_CHARACTERS),
    }
    text = f.to_json(f.struct(*(column.alias(name) for name, column in fields.items())))
    return parsed.where(f.col(MALFORMED).isNotNull()).select(text.alias("data"), f.lit(TAG).alias("tag"))


def _ends(
    client: TopicsClient, server: ServerOptions, ranges: list[SeqRange]
) -> dict[str, tuple[StreamOffset, StreamOffset]]:
    """Return start and end by topic. A topic that was created again has none of these records."""
    if not ranges:
        return {}
    names = sorted({one.topic for one in ranges})
    views, _ = subscribed(client, parse_read(source_options(server, names, None)))
    found: dict[str, tuple[StreamOffset, StreamOffset]] = {}
    for one in ranges:
        if one.topic in views and views[one.topic].epoch == one.epoch:
            start = StreamOffset(one.start.seq if one.start.epoch == one.epoch else ORIGIN, one.epoch)
            end = StreamOffset(one.to_seq, one.epoch)
            low, high = found.get(one.topic, (start, end))
            found[one.topic] = min(start, low), max(end, high)
    return found
