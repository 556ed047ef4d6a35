"""Which topics a pipeline reads: named ones, or all that match a pattern."""

from __future__ import annotations

import re

from pyspark_topics.pipelines.context import Server


def check_topics(topics: list[str], pattern: str | None) -> None:
    if bool(topics) == (pattern is not None):
        raise ValueError('give either topics, like ["orders"], or pattern, a regular expression for names')
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern is not a regular expression: {error}") from None


def source_options(server: Server, topics: list[str], pattern: str | None, **more: str) -> dict[str, str]:
    """Options of the Spark source for such a choice."""
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": pattern or ""}
    return {**server.options, **chosen, **more}
