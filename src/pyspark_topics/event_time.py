"""A record's own time: a column `event_ts` in Spark, Unix milliseconds under that name inside its `meta`.

The server's `ts` says when a record was appended. What was loaded, replayed or derived has an earlier one.
"""

import msgspec
import pyarrow as pa

from pyspark_topics.errors import BadRow

EVENT_TS = "event_ts"
TIMESTAMP = pa.timestamp("us", tz="UTC")
# The years 1 to 9999, which is what dates go up to.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class _Meta(msgspec.Struct):
    event_ts: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Meta).decode
_NONE = pa.scalar(None, pa.string())


def event_ts_of(meta: pa.Array) -> pa.Array:
    """As timestamps; NULL where there is none, or something else under that name."""
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
