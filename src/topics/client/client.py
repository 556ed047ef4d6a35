"""The routes of the server that bulk readers and writers use, one method each."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from topics.client.connection import PATIENCE_S, Connection

ARROW_STREAM = "application/vnd.apache.arrow.stream"
LIST_PAGE = 1000

Json = dict[str, Any]


def _topic_path(topic: str) -> str:
    return "/v0/topics/" + quote(topic, safe="")


class Client:
    def __init__(self, url: str, api_key: str | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self._connection = Connection(url, api_key, patience_s=patience_s)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        encoded = None if body is None else json.dumps(body).encode()
        answer: Json = json.loads(self._connection.fetch(method, path, encoded))
        return answer

    # --- topics -----------------------------------------------------------------------------------------

    def topic(self, name: str) -> Json:
        """State of one topic, without counting as a reader of it."""
        return self._ask("GET", _topic_path(name) + "?touch=false")

    def topic_names(self, prefix: str = "") -> Iterator[str]:
        query = {"prefix": prefix, "page_size": str(LIST_PAGE)}
        while True:
            page = self._ask("GET", "/v0/topics?" + urlencode(query))
            yield from (entry["topic"] for entry in page["topics"])
            if "next_cursor" not in page:
                return
            query["cursor"] = page["next_cursor"]

    # --- bulk reads -------------------------------------------------------------------------------------

    def scan(self, topic: str, request: Json) -> http.client.HTTPResponse:
        """An Arrow IPC stream. Read it to its end, or close the client before the next request."""
        return self._connection.send("POST", _topic_path(topic) + "/scan", json.dumps(request).encode())

    def segments(self, topic: str) -> Json:
        return self._ask("GET", _topic_path(topic) + "/segments")

    def renew_segments(self, topic: str, snapshot: str) -> Json:
        return self._ask("POST", f"{_topic_path(topic)}/segments/{quote(snapshot, safe='')}/renew", {})

    def release_segments(self, topic: str, snapshot: str) -> Json:
        return self._ask("DELETE", f"{_topic_path(topic)}/segments/{quote(snapshot, safe='')}")

    # --- cursors ----------------------------------------------------------------------------------------

    def put_cursor(self, topic: str, consumer: str, seq: int, epoch: int) -> Json:
        path = f"{_topic_path(topic)}/cursors/{quote(consumer, safe='')}"
        return self._ask("PUT", path, {"seq": seq, "epoch": epoch})

    # --- stages -----------------------------------------------------------------------------------------

    def put_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> Json:
        """Rows that name no topic of their own are for `topic`."""
        query = "" if topic is None else "?" + urlencode({"topic": topic})
        path = f"/v0/stages/{quote(stage, safe='')}/parts/{quote(part, safe='')}{query}"
        answer: Json = json.loads(self._connection.fetch("PUT", path, arrow_stream, ARROW_STREAM))
        return answer

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> Json:
        request = {"identity": {"id": identity, "batch": batch}, "parts": parts}
        return self._ask("POST", f"/v0/stages/{quote(stage, safe='')}/commit", request)

    def drop_stage(self, stage: str) -> Json:
        return self._ask("DELETE", f"/v0/stages/{quote(stage, safe='')}")
