"""Columns of the source and of the sink, and the record's own time.

    source: Arrow of a scan or of a file → `ReadSchema` → rows of Spark
    sink:   rows of Spark → `Rows` → JSON text, as a stage takes it

Spark refuses a batch whose Arrow schema differs from the declared one, so one list of fields makes both. All
columns are nullable: a loss row has no value in the columns of a record.

`ts` is the time at which the server appended a record. A record that was loaded, replayed or derived has an
earlier time of its own: the column `event_ts`, kept as Unix milliseconds under that name in `meta`.
"""

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self

import msgspec
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from pyspark_topics.errors import BadRow, OptionError
from pyspark_topics.options import SourceOptions, WriteOptions

EVENT_TS = "event_ts"
TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, tuple[Any, pa.DataType]] = {
    "topic": (StringType(), pa.string()),
    "seq": (LongType(), pa.int64()),
    "ts": (TimestampType(), TIMESTAMP),
    "node": (StringType(), pa.string()),
    "tag": (StringType(), pa.string()),
    "data": (StringType(), pa.string()),
    "meta": (StringType(), pa.string()),
    "kind": (StringType(), pa.string()),
    "gap_from": (LongType(), pa.int64()),
    "gap_to": (LongType(), pa.int64()),
    "reason": (StringType(), pa.string()),
    # The record's own time, which is kept in its meta. Last, because programs count columns.
    EVENT_TS: (TimestampType(), TIMESTAMP),
}
LOSS_COLUMNS = ("kind", "gap_from", "gap_to", "reason")
RECORD_COLUMNS = tuple(name for name in _TYPES if name not in LOSS_COLUMNS)
# What a scan can be asked for; the rest is made here.
SCANNED = ("seq", "ts", "node", "tag", "data", "meta")
RECORD, TOMBSTONE = "record", "tombstone"


def column_names(options: SourceOptions) -> tuple[str, ...]:
    """Loss columns belong to loss rows: they are there if and only if such rows can come."""
    names = options.columns or RECORD_COLUMNS
    for name in names:
        if name not in _TYPES:
            raise OptionError(f'option "columns" names "{name}", but the columns are: {", ".join(_TYPES)}')
        if name in LOSS_COLUMNS and options.loss != "rows":
            raise OptionError(f'option "columns" names "{name}", which is only there with loss = "rows"')
    if not options.include_meta:
        wanted = options.columns or ()
        names = tuple(name for name in names if name != "meta" and (name != EVENT_TS or name in wanted))
    own_time = tuple(name for name in names if name == EVENT_TS)
    records = tuple(name for name in names if name not in (*LOSS_COLUMNS, EVENT_TS))
    return (*records, *LOSS_COLUMNS, *own_time) if options.loss == "rows" else (*records, *own_time)


def spark_schema(options: SourceOptions) -> StructType:
    return StructType([StructField(name, _TYPES[name][0], True) for name in column_names(options)])


@dataclass(frozen=True)
class ReadSchema:
    """The columns of one read, in order."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, options: SourceOptions) -> Self:
        """From the schema Spark reads with: ours, or one the user gave with `.schema(...)`."""
        offered = {field.name: field.dataType for field in spark_schema(options).fields}
        for field in schema.fields:
            if offered.get(field.name) != field.dataType:
                given = f"{field.name} {field.dataType.simpleString()}"
                known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in offered.items())
                raise OptionError(f'this read has no column "{given}"; it has: {known}')
        return cls(tuple(schema.fieldNames()))

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(name, _TYPES[name][1], True) for name in self.names])

    @property
    def scanned(self) -> list[str]:
        """Columns to ask the server for. A broken scan is resumed behind the last seq, so that is one."""
        return [name for name in SCANNED if name in self._needed or name == "seq"]

    @property
    def _needed(self) -> tuple[str, ...]:
        return (*self.names, "meta") if EVENT_TS in self.names else self.names

    @property
    def stored(self) -> list[str]:
        """Columns to take from a file: the wanted ones, and one in any case, to know how many rows it has."""
        return [name for name in SCANNED if name in self._needed] or ["seq"]

    def records(self, topic: str, count: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        arrays = [self._column(name, topic, count, columns) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    @staticmethod
    def _column(name: str, topic: str, count: int, columns: Mapping[str, pa.Array]) -> pa.Array:
        kind = _TYPES[name][1]
        if name in columns:
            found = columns[name]
            return found if found.type == kind else found.cast(kind)
        if name == EVENT_TS and "meta" in columns:
            return event_ts_of(columns["meta"])
        if name == "topic":
            return pa.repeat(pa.scalar(topic, kind), count)
        if name == "kind":
            return pa.repeat(pa.scalar(RECORD, kind), count)
        return pa.nulls(count, kind)

    def tombstone(self, topic: str, gap_from: int, gap_to: int, reason: str) -> pa.RecordBatch:
        values = {
            "topic": topic,
            "kind": TOMBSTONE,
            "gap_from": gap_from,
            "gap_to": gap_to,
            "reason": reason,
        }
        arrays = [pa.array([values.get(name)], _TYPES[name][1]) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


# The years 1 to 9999, which is what dates go up to.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class _TimedMeta(msgspec.Struct):
    event_ts: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_TimedMeta).decode
_NONE = pa.scalar(None, pa.string())


def event_ts_of(meta: pa.Array) -> pa.Array:
    """Return the times in `meta` as timestamps; NULL if there is none."""
    import pyarrow.compute as pc  # takes as long as Spark's own part of a process; the driver does without

    mentioned = pc.fill_null(pc.match_substring(meta, f'"{EVENT_TS}"'), False)
    if not pc.any(mentioned).as_py():
        return pa.nulls(len(meta), TIMESTAMP)
    texts = pc.if_else(mentioned, meta, _NONE).to_pylist()
    times = pa.array([None if text is None else _ms(text) for text in texts], pa.timestamp("ms", tz="UTC"))
    return times.cast(TIMESTAMP)


def _ms(text: str) -> int | None:
    try:
        found = bytes(_decode(text).event_ts)
        ms = int(found) if found and found != b"null" else None
    except (msgspec.DecodeError, ValueError):
        return None
    return ms if ms is not None and _FIRST_MS <= ms <= _LAST_MS else None


def with_event_ts(meta: pa.Array | None, times: pa.Array, *, keep: bool = False) -> pa.Array:
    """`meta` with the times in it, where there are some; `keep` leaves those that are in it already."""
    import pyarrow.compute as pc

    if pa.types.is_timestamp(times.type) and times.type.tz is None:
        times = times.cast(pa.timestamp(times.type.unit, tz="UTC"))
    ms = times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    if meta is None:
        meta = pa.nulls(len(times), pa.string())
    if keep:
        ms = pc.if_else(pc.is_valid(event_ts_of(meta)), pa.scalar(None, pa.int64()), ms)
    alone = pc.binary_join_element_wise(f'{{"{EVENT_TS}":', ms.cast(pa.string()), "}", "")
    both = pc.and_(pc.is_valid(ms), pc.is_valid(meta))
    if not pc.any(both).as_py():
        return pc.coalesce(meta, alone)
    pairs = zip(meta.to_pylist(), ms.to_pylist(), alone.to_pylist(), strict=True)
    texts = [
        _put(text, at) if text is not None and at is not None else text or made for text, at, made in pairs
    ]
    return pa.array(texts, pa.string())


def _put(text: str, ms: int) -> str:
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        raise BadRow("a row has an event_ts, and a meta that is no object to keep it in") from None
    return msgspec.json.encode({**fields, EVENT_TS: ms}).decode()


COLUMNS = ("data", "topic", "tag", "node", "meta", EVENT_TS)
_JSON_COLUMNS = ("data", "meta")
_TIMES = (types.TimestampType, types.TimestampNTZType)
_NESTED = (types.StructType, types.MapType, types.ArrayType, types.VariantType)


@dataclass(frozen=True)
class SinkRows:
    """The conversion of Spark's batches into the rows of a stage."""

    names: tuple[str, ...]
    # Columns that hold values rather than JSON text, with their types.
    nested: dict[str, types.DataType]
    has_target: bool

    @classmethod
    def of(cls, schema: types.StructType, options: WriteOptions) -> Self:
        kinds = {field.name: field.dataType for field in schema.fields}
        unknown = [name for name in kinds if name not in COLUMNS]
        if unknown:
            raise OptionError(
                f"the sink does not take the column {unknown[0]}: select from {', '.join(COLUMNS)}"
            )
        if "data" not in kinds:
            raise OptionError('the sink needs a column "data": JSON text, or a struct, map, array or variant')
        if options.topic is None and "topic" not in kinds:
            raise OptionError('name the target with option "topic", or per row in a column "topic"')
        for name, kind in kinds.items():
            is_nested = name in _JSON_COLUMNS and isinstance(kind, _NESTED)
            if name == EVENT_TS:
                if not isinstance(kind, _TIMES):
                    raise OptionError(
                        f'the sink takes a timestamp as column "{name}", and this is {kind.simpleString()}'
                    )
                continue
            if not isinstance(kind, types.StringType) and not is_nested:
                also = ", a struct, map, array or variant" if name in _JSON_COLUMNS else ""
                raise OptionError(
                    f'the sink takes a string{also} as column "{name}", and this is {kind.simpleString()}'
                )
        # One target named as an option is meant for all rows, also for those that say where they came from.
        names = tuple(name for name in kinds if name != "topic" or options.topic is None)
        return cls(
            names, {n: kinds[n] for n in names if isinstance(kinds[n], _NESTED)}, options.topic is not None
        )

    def plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Values as JSON text; times apart."""
        names = [name for name in self.names if name != EVENT_TS]
        columns = [self._text(name, batch.column(name)) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def timed(self, plain: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the event times to `meta`; raise for a row without data or topic."""
        columns = dict(zip(plain.schema.names, plain.columns, strict=True))
        if EVENT_TS in self.names:
            columns["meta"] = with_event_ts(columns.get("meta"), batch.column(EVENT_TS))
        for name in ("data",) if self.has_target else ("data", "topic"):
            if columns[name].null_count:
                raise BadRow(
                    f'a row has NULL as its {name}: keep loss rows out with kind = "record", '
                    "and write a JSON null as the text null"
                )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _text(self, name: str, column: pa.Array) -> pa.Array:
        kind = self.nested.get(name)
        if kind is None:
            return column
        plain = _converter(kind)
        encode = msgspec.json.Encoder(decimal_format="number").encode
        texts = [None if value is None else encode(plain(value)).decode() for value in column.to_pylist()]
        return pa.array(texts, pa.string())


def _converter(kind: types.DataType) -> Callable[[Any], Any]:
    """From what Arrow hands out to what JSON can say, as Spark's own `to_json` does it."""
    if isinstance(kind, types.StructType):
        fields = [(field.name, _converter(field.dataType)) for field in kind.fields]
        return lambda value: {n: plain(value[n]) for n, plain in fields if value[n] is not None}
    if isinstance(kind, types.MapType):
        name, plain_value = _converter(kind.keyType), _converter(kind.valueType)
        return lambda value: {_key(name(k)): None if v is None else plain_value(v) for k, v in value}
    if isinstance(kind, types.ArrayType):
        plain_element = _converter(kind.elementType)
        return lambda value: [None if element is None else plain_element(element) for element in value]
    if isinstance(kind, types.VariantType):
        return lambda value: msgspec.Raw(
            types.VariantVal(value["value"], value["metadata"]).toJson().encode()
        )
    if isinstance(kind, types.FloatType):
        from numpy import float32  # loaded where it is needed: processes that read do without

        return lambda value: _plain(float(str(float32(value))))  # 0.1, not what it is as a double
    return _plain


def _key(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool | int | float | str | Decimal):
        return value
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)
