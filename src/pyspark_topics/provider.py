"""The data source `topics`, as Spark calls it, and views of topics for SQL.

Spark starts one process to plan and others to read and write, and waits for each of them to answer. Modules
that only one kind of process needs are therefore imported late.

Spark has no catalogs in Python, and does not pass the options of `CREATE TABLE … USING topics` to a source in
Python. A temporary view gives a topic a name in SQL.
"""

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from pyspark.sql.utils import to_str

from pyspark_topics.batch import BatchReader, PushdownReader
from pyspark_topics.errors import OptionError
from pyspark_topics.micro_batch_stream import StreamReader
from pyspark_topics.options import parse_read, parse_write
from pyspark_topics.rows import spark_schema

if TYPE_CHECKING:
    from pyspark_topics.writer import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """Spark registers a class of this name in every installed package named `pyspark_…`."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> StructType:
        return spark_schema(parse_read(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        options = parse_read(self.options, streaming=False)
        return (PushdownReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(parse_read(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from pyspark_topics.writer import BatchWriter

        return BatchWriter(parse_write(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802 - Spark's name
        from pyspark_topics.writer import StreamWriter

        return StreamWriter(parse_write(self.options), schema, overwrite)


def attach(
    spark: SparkSession, url: str, *, prefix: str = "", streaming: bool = False, **options: object
) -> list[str]:
    """Make views of all topics that begin with `prefix`, and return their names; `options` as the source has.

    Again: views are renewed, and there are views of topics that came since.
    """
    for name in options:
        if name.lower() in ("subscribe", "subscribepattern"):
            raise OptionError(f'attach makes a view of each topic, so "{name}" is not for it: give a prefix')
    texts = {name: text for name, value in options.items() if (text := to_str(value)) is not None}
    given = {"url": url, **texts}
    with parse_read({**given, "subscribe": "any"}, streaming=streaming).server.client() as client:
        names = sorted(name for name in client.topic_names() if name.startswith(prefix))
    seen: dict[str, str] = {}
    for name in names:  # SQL does not tell `Orders` from `orders`: one would stand for both
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise OptionError(
                f'topics "{other}" and "{name}" would be one view, because SQL does not tell them apart: '
                "attach one of them by a longer prefix"
            )
    spark.dataSource.register(DefaultSource)
    for name in names:
        reader = (spark.readStream if streaming else spark.read).format(DefaultSource.name())
        frame = reader.options(**given, subscribe=name).load()
        if streaming:
            # INSERT into a stream as such breaks Spark's analysis; into what was selected of it is refused.
            frame = frame.select("*")
        frame.createOrReplaceTempView(f"`{name}`")
    return names
