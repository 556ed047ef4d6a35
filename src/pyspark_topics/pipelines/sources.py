"""Which topics a pipeline reads: named ones, or all that match a pattern."""

from __future__ import annotations

import re

from pyspark_topics.options import Server
from topics.values.names import is_topic_name


def check_topics(topics: list[str], pattern: str | None) -> None:
    if bool(topics) == (pattern is not None):
        raise ValueError('give either topics, like ["orders"], or pattern, a regular expression for names')
    check_pattern(pattern)
    for name in topics:
        check_name(name)


def check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"pattern is not a regular expression: {error}") from None


def check_not_read(target: str | None, topics: list[str], pattern: str | None) -> None:
    """Whoever reads what it writes never comes to an end."""
    if target is not None and (target in topics or (pattern and re.fullmatch(pattern, target))):
        raise ValueError(f'it would read what it writes: "{target}" is one of its topics')


def check_name(topic: str | None) -> None:
    if topic is not None and not is_topic_name(topic):
        raise ValueError(
            f'a topic cannot be called "{topic}": names are letters, digits and . _ : -, and begin with a '
            "letter or digit"
        )


def check_table(path: str | None) -> None:
    """Files are written and synced by executors, which is why they lie on a disk."""
    if path is not None and (not path.strip() or "://" in path):
        raise ValueError(f'a table cannot be at "{path}": it has to be a folder on a disk')


def source_options(server: Server, topics: list[str], pattern: str | None, **more: str) -> dict[str, str]:
    """Options of the Spark source for such a choice."""
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": pattern or ""}
    return {**server.options, **chosen, **more}
