"""Settings that several kinds of pipelines have, checked in one way, and what they stand for."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_topics.options import Server
from pyspark_topics.pipelines.tables.places import SCHEMES
from topics.values.names import is_topic_name

# Formats of files, by how their names end.
FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_ADDRESSES = "s3://bucket/path, az://container/path or gs://bucket/path"
NAME_RULE = "names are letters, digits and . _ : -, and begin with a letter or digit"


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
    """A pipeline that reads what it writes never comes to an end."""
    if target is not None and (target in topics or (pattern and re.fullmatch(pattern, target))):
        raise ValueError(f'it would read what it writes: "{target}" is one of its topics')


def check_name(topic: str | None) -> None:
    if topic is not None and not is_topic_name(topic):
        raise ValueError(f'a topic cannot be called "{topic}": {NAME_RULE}')


def check_table(path: str | None, what: str = "a table") -> None:
    """Whether it can be there; `state` goes wherever tables go."""
    if path is None:
        return
    scheme, is_url, rest = path.partition("://")
    if not path.strip() or (is_url and (scheme not in SCHEMES or not rest.strip("/"))):
        raise ValueError(f'{what} cannot be at "{path}": it has to be a folder, or at {_ADDRESSES}')


def source_options(server: Server, topics: list[str], pattern: str | None, **more: str) -> dict[str, str]:
    """Options of the Spark source for a choice of topics."""
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": pattern or ""}
    return {**server.options, **chosen, **more}


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """`file.py:function`, the file beside the declaration."""
    path, _, name = reference.rpartition(":")
    if not path or not name:
        raise ValueError('python has to be like "routes.py:enrich"')
    file = folder / path
    if not file.is_file():
        raise ValueError(f"python names {file}, and there is no such file")
    try:
        function = run_file(file).get(name)
    except Exception as error:  # code of the user
        raise ValueError(
            f"python names {file}, and running it failed with {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise ValueError(f'python is "{reference}", and {file} has no function {name}')
    found: Callable[..., Any] = function
    return found


def run_file(path: Path) -> dict[str, Any]:
    """What a user's file defines. Like a script, it may import modules that lie beside it, now and later."""
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return runpy.run_path(str(path))
