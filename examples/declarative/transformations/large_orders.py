"""Orders of two and more into a topic of their own; what the sources lost is announced there, too."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

URL = os.environ["TOPICS_URL"]

dp.create_sink("large_orders", "topics", {"url": URL, "topic": "large-orders"})


def source() -> DataFrame:
    session = SparkSession.active()
    reader = session.readStream.format("topics").option("url", URL).option("subscribe", "orders,recent")
    return reader.option("startingOffsets", "earliest").load()


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    order = f.from_json("data", "sku STRING, qty INT")
    orders = source().where("kind = 'record'").withColumn("order", order)
    return orders.where("order.qty >= 2").select(f.to_json("order").alias("data"), "tag")


@dp.append_flow(target="large_orders")
def lost() -> DataFrame:
    gap = f.struct(f.lit("tombstone").alias("kind"), "topic", "gap_from", "gap_to", "reason")
    return (
        source()
        .where("kind = 'tombstone'")
        .select(f.to_json(gap).alias("data"), f.lit("tombstone").alias("tag"))
    )
