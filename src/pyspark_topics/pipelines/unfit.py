"""Records that do not fit a route's schema: found beside the query, which may not read them at all."""

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.misfits import KEPT_CHARACTERS, KIND, TAG, Misfits
from pyspark_topics.offsets import ORIGIN, Position
from pyspark_topics.options import Server, parse_read
from pyspark_topics.partitions import SeqRange
from pyspark_topics.payload import MALFORMED, parse_data
from pyspark_topics.pipelines import tombstones
from pyspark_topics.pipelines.settings import source_options
from pyspark_topics.subscription import subscribed
from topics.client import Client


def unfit_records(
    spark: SparkSession,
    client: Client,
    server: Server,
    schema: str,
    ranges: list[SeqRange],
    misfits: Misfits,
) -> DataFrame | None:
    """As the sink takes them, a record for each; None if there is nothing to read."""
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
    handed_on = (f.col("tag") == tombstones.TAG) & f.col("data").startswith(tombstones.BEGINNING)
    parsed = parse_data(records.where(~f.coalesce(handed_on, f.lit(False))), schema)
    fields = {
        "kind": f.lit(KIND),
        "pipeline": f.lit(misfits.pipeline),
        "reason": f.lit(f"it does not fit the schema: {schema}"),
        "topic": f.col("topic"),
        "seq": f.col("seq"),
        "row": f.substring(MALFORMED, 1, KEPT_CHARACTERS),
    }
    text = f.to_json(f.struct(*(column.alias(name) for name, column in fields.items())))
    return parsed.where(f.col(MALFORMED).isNotNull()).select(text.alias("data"), f.lit(TAG).alias("tag"))


def _ends(client: Client, server: Server, ranges: list[SeqRange]) -> dict[str, tuple[Position, Position]]:
    """By topic. One that began anew since has none of these records any more."""
    if not ranges:
        return {}
    names = sorted({one.topic for one in ranges})
    views, _ = subscribed(client, parse_read(source_options(server, names, None)))
    found: dict[str, tuple[Position, Position]] = {}
    for one in ranges:
        if one.topic in views and views[one.topic].epoch == one.epoch:
            start = one.start.seq if one.start.epoch == one.epoch else ORIGIN
            low, high = found.get(one.topic, (Position(start, one.epoch), Position(one.to_seq, one.epoch)))
            found[one.topic] = (
                Position(min(start, low.seq), one.epoch),
                Position(max(one.to_seq, high.seq), one.epoch),
            )
    return found
