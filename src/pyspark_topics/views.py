"""Topics in SQL: every topic a temporary view under its own name.

Spark has no catalogs in Python, and does not hand the options of `CREATE TABLE … USING topics` to a source in
Python: a view is what makes a topic known by its name.
"""

from pyspark.sql import SparkSession
from pyspark.sql.utils import to_str

from pyspark_topics.errors import OptionError
from pyspark_topics.options import parse_read
from pyspark_topics.source import DefaultSource


def attach(
    spark: SparkSession, url: str, *, prefix: str = "", streaming: bool = False, **options: object
) -> list[str]:
    """Make views of all topics that begin with `prefix`, and return their names; `options` as the source has.

    Again: views are renewed, and there are views of topics that came since.
    """
    given = {"url": url, **_texts(options)}
    with parse_read({**given, "subscribe": "any"}, streaming=streaming).server.client() as client:
        names = sorted(name for name in client.topic_names() if name.startswith(prefix))
    _refuse_alike(names)
    spark.dataSource.register(DefaultSource)
    for name in names:
        reader = (spark.readStream if streaming else spark.read).format(DefaultSource.name())
        frame = reader.options(**given, subscribe=name).load()
        if streaming:
            # INSERT into a stream as such breaks Spark's analysis; into what was selected of it is refused.
            frame = frame.select("*")
        frame.createOrReplaceTempView(f"`{name}`")
    return names


def _texts(options: dict[str, object]) -> dict[str, str]:
    """As Spark's own `options` takes numbers and truth values; which topics are meant is said by `prefix`."""
    for name in options:
        if name.lower() in ("subscribe", "subscribepattern"):
            raise OptionError(f'attach makes a view of each topic, so "{name}" is not for it: give a prefix')
    texts = {name: to_str(value) for name, value in options.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _refuse_alike(names: list[str]) -> None:
    """SQL does not tell `Orders` from `orders`: one would stand for both."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise OptionError(
                f'topics "{other}" and "{name}" would be one view, because SQL does not tell them apart: '
                "attach one of them by a longer prefix"
            )
