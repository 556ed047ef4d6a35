"""An append-only event log: `from topics import Topics`. Names are imported when they are first used."""

import sys
from typing import Any

from topics.compiled import CompiledFinder

__version__ = "0.1.0"

sys.meta_path.insert(0, CompiledFinder())

# Where the names of the SDK are. The stub beside this file says the same to type checkers.
_HOMES = {
    "topics.client.sync": "Topics",
    "topics.client.topic": "Topic Writer",
    "topics.client.aio": "AsyncTopics",
    "topics.client.aio_topic": "AsyncTopic AsyncWriter",
    "topics.client.jobs": "Job Queue Worker",
    "topics.client.aio_jobs": "AsyncJob AsyncQueue AsyncWorker",
    "topics.client.cursors": "Cursor FileCursor MemoryCursor ServerCursor SqliteCursor",
    "topics.client.records": "Accepted Ack Answer Draft Lost Position Record Restarted",
    "topics.client.errors": (
        "ConfigDiffers Forbidden InvalidData LeaseLost Loss NoJob RecordGone RecordsLost Refused"
        " TopicNotFound TopicRestarted TopicsError Unauthorized Uncertain Unreachable"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
