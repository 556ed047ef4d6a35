"""Speaking Arrow to a server."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tests.support import Answer, ServerProcess
from tests.support.arrow import arrow_stream
from topics.log.write import arrow_batch
from topics.log.write.arrow_batch import column_names

ARROW = "application/vnd.apache.arrow.stream"


def send(
    server: ServerProcess, method: str, path: str, body: bytes, content_type: str = ARROW, **headers: str
) -> Answer:
    return server.request(method, path, body, {"Content-Type": content_type, **headers})


def append(server: ServerProcess, topic: str, *batches: dict[str, list[Any]], query: str = "") -> Answer:
    return send(server, "POST", f"/v0/topics/{topic}/append{query}", arrow_stream(*batches))


@dataclass
class Scanned:
    answer: Answer
    about: dict[str, Any]
    outcome: dict[str, Any]
    rows: list[dict[str, Any]]
    gaps: list[dict[str, Any]]
    batch_rows: list[int]
    names: list[str]


def scan(server: ServerProcess, topic: str, **request: Any) -> Scanned:
    """The whole stream, taken apart."""
    answer = server.request("POST", f"/v0/topics/{topic}/scan", request)
    assert answer.status == 200, answer.body
    return parse(answer)


def parse(answer: Answer) -> Scanned:
    reader = pa.ipc.open_stream(answer.body)
    rows: list[dict[str, Any]] = []
    about: list[dict[str, Any]] = []
    sizes: list[int] = []
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        rows += batch.to_pylist()
        sizes.append(batch.num_rows)
        about.append({} if metadata is None else json.loads(metadata[b"topics"]))
    schema = reader.schema
    gaps = [entry["tombstone"] for entry in about if "tombstone" in entry]
    assert sizes[-1] == 0
    return Scanned(
        answer, json.loads(schema.metadata[b"topics"]), about[-1], rows, gaps, sizes[:-1], schema.names
    )


def threads_that_open(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """On which thread each Arrow stream is opened to see its columns, from now on."""
    threads: list[threading.Thread] = []

    def names(body: bytes) -> list[str]:
        threads.append(threading.current_thread())
        return column_names(body)

    monkeypatch.setattr(arrow_batch, "column_names", names)
    return threads
