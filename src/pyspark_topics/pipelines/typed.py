"""Columns out of `data`: a field each, and what does not fit beside them.

    data ─▶ fields that are columns, where they fit     ─▶ values
         └▶ other fields, values of another type, or a value that is no object ─▶ `_rescued`, as JSON

`data` itself stays as it was. With `evolve`, fields that are no column yet are reported with what they hold,
and the driver makes columns of them before anything is committed.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from pyspark_topics.pipelines.table_schema import DAY, RESCUED, RESERVED
from pyspark_topics.rows import TIMESTAMP

# No table of ours has more columns than that by itself: further fields stay in `_rescued`.
MOST_COLUMNS = 1000
_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
}
# Columns that come by themselves, by what their fields held.
_OF_VALUES = {
    frozenset(("int",)): pa.int64(),
    frozenset(("float",)): pa.float64(),
    frozenset(("int", "float")): pa.float64(),
    frozenset(("bool",)): pa.bool_(),
}
_PARTITIONING = (kinds.is_string, kinds.is_integer, kinds.is_boolean, kinds.is_date)
# What Parquet and Delta do not take in the name of a column.
_BAD_NAME = re.compile(r"[ ,;{}()\n\t=]")
_FIELD = re.compile(r"(`[^`]+`|[^\s:`]+)\s*:?\s+(.+)", re.DOTALL)
_DECIMAL = re.compile(r"DECIMAL\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")
# With "<" it refuses what is too large; else that would become infinity.
_SINGLE = struct.Struct("<f")
# Digits behind microseconds, which Python would cut off.
_TOO_FINE = re.compile(r"[.,][0-9]{6}0*[1-9]")
_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


# --- as users write them --------------------------------------------------------------------------------


def parse_schema(text: str) -> dict[str, pa.DataType]:
    """Fields of `schema`, like "sku STRING, price DECIMAL(10, 2)"."""
    fields: dict[str, pa.DataType] = {}
    for one in re.split(r",(?![^(]*\))", text):
        found = _FIELD.fullmatch(one.strip())
        if found is None:
            raise ValueError(f'schema has "{one.strip()}", and a field is a name and a type, like "qty INT"')
        name = found[1].strip("`")
        if name.lower() in {known.lower() for known in (*RESERVED, *fields)}:
            raise ValueError(f'schema names "{name}", which is a column already')
        if _BAD_NAME.search(name):
            raise ValueError(f'schema names "{name}": a column cannot be called that')
        fields[name] = _type(name, found[2])
    return fields


def _type(name: str, text: str) -> pa.DataType:
    plain = " ".join(text.upper().split())
    decimal = _DECIMAL.fullmatch(plain)
    if decimal is not None and 0 < int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if plain not in _TYPES:
        raise ValueError(
            f'schema gives "{name}" the type {text.strip()}; a column can be: {", ".join(_TYPES)}, '
            "DECIMAL(p, s); objects and lists are STRING, as JSON"
        )
    return _TYPES[plain]


def check_columns(setting: str, names: Sequence[str], fields: Mapping[str, pa.DataType]) -> None:
    """`partition_by` and `cluster_by` choose from what every table has, and the fields of `schema`."""
    offered = ("topic", DAY, *fields)
    for name in names:
        if name not in offered:
            raise ValueError(f'{setting} names "{name}", and it can be: {", ".join(offered)}')
        if (
            setting == "partition_by"
            and name in fields
            and not any(is_(fields[name]) for is_ in _PARTITIONING)
        ):
            raise ValueError(f'partition_by names "{name}": choose a STRING, a whole number, BOOLEAN or DATE')
    if len(set(names)) < len(names):
        raise ValueError(f"{setting} names a column twice")


def settled(found: Iterable[Mapping[str, frozenset[str]]]) -> dict[str, pa.DataType]:
    """Columns for fields that tasks came across, each of one type for all of them."""
    together: dict[str, frozenset[str]] = defaultdict(frozenset)
    for one in found:
        for name, values in one.items():
            together[name] |= values
    chosen: dict[str, pa.DataType] = {}
    for name, values in sorted(together.items()):
        if name.lower() not in {other.lower() for other in chosen}:
            chosen[name] = _OF_VALUES.get(values, pa.string())
    return chosen


# --- values ---------------------------------------------------------------------------------------------


# In place of a value that does not fit its column.
_MISFIT = object()


def _number(value: Any, exact_up_to: int = 2**53) -> Any:
    is_exact = type(value) is float or (type(value) is int and abs(value) <= exact_up_to)
    return float(value) if is_exact else _MISFIT


def _single(value: Any) -> Any:
    """Rounded as every such number is, but neither to infinity nor to nothing."""
    found = _number(value, 2**24)
    try:
        return _MISFIT if found and not _SINGLE.unpack(_SINGLE.pack(found))[0] else found
    except (OverflowError, struct.error):
        return _MISFIT


def _boolean(value: Any) -> Any:
    return value if type(value) is bool else _MISFIT


def _date(value: Any) -> Any:
    try:
        is_day = type(value) is str and len(value) == len("2026-01-31")
        return date.fromisoformat(value) if is_day else _MISFIT
    except ValueError:
        return _MISFIT


def _time(value: Any) -> Any:
    if type(value) is not str or _TOO_FINE.search(value):
        return _MISFIT
    try:
        found = datetime.fromisoformat(value)
        return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)
    except (ValueError, OverflowError):
        return _MISFIT


def _decimal(kind: pa.DataType) -> Callable[[bytes], Any]:
    most = Decimal(10) ** (kind.precision - kind.scale)

    def fit(text: bytes) -> Any:
        try:
            found = Decimal(text.decode())
            is_exact = abs(found) < most and found == found.quantize(Decimal(1).scaleb(-kind.scale))
            return found if is_exact else _MISFIT
        except InvalidOperation:
            return _MISFIT

    return fit


def _fitter(kind: pa.DataType) -> Callable[[Any], Any]:
    if kinds.is_integer(kind):
        least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        return lambda value: value if type(value) is int and least <= value <= most else _MISFIT
    if kinds.is_floating(kind):
        return _single if kind.bit_width == 32 else _number
    return {pa.bool_(): _boolean, pa.date32(): _date, TIMESTAMP: _time}[kind]


@dataclass
class Typing:
    """Of one task: what it makes of `data`, and which fields it came across that are no columns."""

    # All columns of the table, those of every record included.
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    found: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fields = {one.name: one.type for one in self.schema if one.name not in RESERVED}
        self._known = {name.lower() for name in self.schema.names} | {name.lower() for name in RESERVED}
        self._plain = {
            name: _fitter(kind)
            for name, kind in self._fields.items()
            if not kinds.is_string(kind) and not kinds.is_decimal(kind)
        }
        self._decimals = {n: _decimal(kind) for n, kind in self._fields.items() if kinds.is_decimal(kind)}

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With all columns of the table; it has those of every record."""
        made: dict[str, pa.Array] = {}
        if DAY in self.schema.names:
            made[DAY] = batch.column("ts").cast(pa.date32())
        if RESCUED in self.schema.names:
            made |= self._typed(batch.column("data"))
        arrays = [made[one.name] if one.name in made else batch.column(one.name) for one in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _typed(self, data: pa.Array) -> dict[str, pa.Array]:
        columns: dict[str, list[Any]] = {name: [] for name in self._fields}
        rescued: list[str | None] = []
        for text in data.to_pylist():
            values, rest = self._row(text)
            rescued.append(rest)
            for name, column in columns.items():
                column.append(values.get(name))
        arrays = {name: pa.array(column, self._fields[name]) for name, column in columns.items()}
        return {**arrays, RESCUED: pa.array(rescued, pa.string())}

    def _row(self, text: str | None) -> tuple[dict[str, Any], str | None]:
        """Values of the columns, and what does not fit."""
        if text is None:
            return {}, None
        try:
            value = _decode(text)
        except msgspec.DecodeError:  # a number that no double holds, say
            return {}, text
        if type(value) is not dict:
            return {}, text
        fitting: dict[str, Any] = {}
        rest: list[str] = []
        raw: dict[str, msgspec.Raw] | None = None
        for name, one in value.items():
            if name in self._plain:
                found = None if one is None else self._plain[name](one)
            elif name not in self._fields:
                self._note(name, one)
                found = _MISFIT
            elif one is None:
                found = None
            elif type(one) is str and name not in self._decimals:
                # Delta does not tell an empty value of a partition from NULL.
                found = one if one or name not in self.partition_by else _MISFIT
            else:
                raw = _decode_raw(text) if raw is None else raw
                found = self._from_raw(name, one, bytes(raw[name]))
            if found is _MISFIT:
                rest.append(name)
            else:
                fitting[name] = found
        if not rest:
            return fitting, None
        raw = _decode_raw(text) if raw is None else raw
        return fitting, msgspec.json.encode({name: raw[name] for name in rest}).decode()

    def _from_raw(self, name: str, value: Any, text: bytes) -> Any:
        if name in self._decimals:
            return self._decimals[name](text) if type(value) in (int, float) else _MISFIT
        return text.decode() if type(value) in (dict, list) else _MISFIT

    def _note(self, name: str, value: Any) -> None:
        """A field that could be a column. What is NULL says nothing about its type."""
        if value is None or name.lower() in self._known or _BAD_NAME.search(name) or not name:
            return
        if name not in self.found and len(self.schema) + len(self.found) >= MOST_COLUMNS:
            return
        kind = type(value).__name__ if type(value) in (int, float, bool) else "text"
        if kind == "int" and not -(2**63) <= value < 2**63:
            kind = "float"
        self.found[name] = self.found.get(name, frozenset()) | {kind}
