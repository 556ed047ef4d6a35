"""Rows on their way into a topic: the columns of the sink, with values rendered as JSON text."""

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types

from pyspark_topics.errors import BadRow, OptionError
from pyspark_topics.event_time import EVENT_TS, with_event_ts
from pyspark_topics.options import WriteOptions

COLUMNS = ("data", "topic", "tag", "node", "meta", EVENT_TS)
_JSON_COLUMNS = ("data", "meta")
_TIMES = (types.TimestampType, types.TimestampNTZType)
_NESTED = (types.StructType, types.MapType, types.ArrayType, types.VariantType)


@dataclass(frozen=True)
class Rows:
    """How to turn Spark's batches into what a stage takes."""

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

    def render(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.timed(self.plain(batch), batch)

    def plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Values as JSON text; times apart."""
        names = [name for name in self.names if name != EVENT_TS]
        columns = [self._text(name, batch.column(name)) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def timed(self, plain: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those texts with the times of the batch in them. Every row has what a record has to have."""
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
        return lambda value: _plain(float(str(np.float32(value))))  # 0.1, not what it is as a double
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
