"""`data` as something better than text, and columns that become `data`; by Spark's own functions."""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType, TimestampNTZType, TimestampType

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.rows import EVENT_TS

VARIANT = "variant"
_TIMES = (TimestampType, TimestampNTZType)
# Text that does not fit the schema is kept here, so nothing disappears in parsing.
MALFORMED = "malformed"
# Columns of the sink beside `data` and the target.
ENVELOPE = ("tag", "node", "meta", EVENT_TS)


def parse_data(
    frame: DataFrame, schema: str | StructType, count: str | Observation | None = None
) -> DataFrame:
    """Replace the text in `data`. `schema` is `"variant"`, or columns like `"id BIGINT, name STRING"`.

    A further column `malformed` holds the text of each record that does not fit. `count` has Spark count
    them in passing: by name in a stream's progress (`observedMetrics`), or in an `Observation` of a batch.
    Works on batches and on streams.
    """
    if isinstance(schema, str) and schema.strip().lower() == VARIANT:
        result = _as_variant(frame)
    else:
        result = _by_columns(frame, schema)
    if count is None:
        return result
    records = f.count_if(f.col("data").isNotNull() | f.col(MALFORMED).isNotNull())
    return result.observe(count, records.alias("records"), f.count(MALFORMED).alias(MALFORMED))


def _as_variant(frame: DataFrame) -> DataFrame:
    """Some JSON is too much for a VARIANT, such as an object with one key twice."""
    parsed = f.try_parse_json("data")
    return frame.withColumn(MALFORMED, f.when(parsed.isNull(), f.col("data"))).withColumn("data", parsed)


def _by_columns(frame: DataFrame, schema: str | StructType) -> DataFrame:
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    permissive = StructType([*wanted.fields]).add(MALFORMED, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    parsed = f.from_json("data", permissive, options)
    return (
        frame.withColumn("data", parsed)
        .withColumn(MALFORMED, f.col(f"data.{MALFORMED}"))
        .withColumn("data", f.col("data").dropFields(MALFORMED))
    )


def as_records(
    result: DataFrame, target: str | None, envelope: tuple[str, ...] = ("topic", *ENVELOPE)
) -> DataFrame:
    """Return the sink's columns. Without a column `data`, the columns outside the envelope are the record."""
    if "data" not in result.columns:
        # A column of that name that is no time is one of the record's own.
        kinds = {field.name: field.dataType for field in result.schema.fields}
        is_time = isinstance(kinds.get(EVENT_TS), _TIMES)
        envelope = tuple(name for name in envelope if name != EVENT_TS or is_time)
        inside = [name for name in result.columns if name not in envelope]
        if not inside:
            raise PipelineFailed("the query returns no column that could be a record's data")
        around = [name for name in result.columns if name in envelope]
        # In backticks, because a dot in a name would mean a field inside another column.
        fields = [f.col("`" + name.replace("`", "``") + "`") for name in inside]
        result = result.select(f.struct(*fields).alias("data"), *around)
    return result.drop("topic") if target is not None else result
