"""What Spark calls: the data source named `topics`.

Spark starts processes for reading and for writing, and waits for their first word: what only one kind of them
needs is imported late.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_topics.batch import BatchReader, PushdownReader
from pyspark_topics.options import parse_read, parse_write
from pyspark_topics.schema import spark_schema
from pyspark_topics.stream import StreamReader

if TYPE_CHECKING:
    from pyspark_topics.writing import BatchWriter, StreamWriter


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
        from pyspark_topics.writing import BatchWriter

        return BatchWriter(parse_write(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802 - Spark's name
        from pyspark_topics.writing import StreamWriter

        return StreamWriter(parse_write(self.options), schema, overwrite)
