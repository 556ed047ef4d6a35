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

    def ready(self) -> Json:
        """Raises while the server is not ready for data."""
        return self._ask("GET", "/v0/ready")

    # --- topics -----------------------------------------------------------------------------------------

    def topic(self, name: str) -> Json:
        """State of one topic, without counting as a reader of it."""
        return self._ask("GET", _topic_path(name) + "?touch=false")

    def topic_names(self) -> Iterator[str]:
        query = {"page_size": str(LIST_PAGE)}
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

    def ledger(self, topic: str) -> Json:
        """Which seqs are missing, and why."""
        return self._ask("GET", _topic_path(topic) + "/ledger")

    # --- cursors ----------------------------------------------------------------------------------------

    def put_cursor(self, topic: str, consumer: str, seq: int, epoch: int) -> Json:
        path = f"{_topic_path(topic)}/cursors/{quote(consumer, safe='')}"
        return self._ask("PUT", path, {"seq": seq, "epoch": epoch})

    def cursors(self, topic: str) -> Json:
        return self._ask("GET", _topic_path(topic) + "/cursors")

    # --- deletes ----------------------------------------------------------------------------------------

    def delete_before(self, topic: str, seq: int) -> Json:
        """Remove everything below a seq for good."""
        return self._ask("POST", _topic_path(topic) + "/delete", {"before_seq": seq})

    def delete_tagged(self, topic: str, tag: str) -> Json:
        """Remove everything with this tag, or with tags that begin so: `user:*`."""
        return self._ask("POST", _topic_path(topic) + "/delete", {"match": tag})

    # --- routers ----------------------------------------------------------------------------------------

    def routers(self) -> Iterator[Json]:
        """Every router with all its settings."""
        query = {"page_size": str(LIST_PAGE)}
        while True:
            page = self._ask("GET", "/v0/routers?" + urlencode(query))
            for entry in page["routers"]:
                yield self._ask("GET", "/v0/routers/" + quote(entry["router"], safe=""))
            if "next_cursor" not in page:
                return
            query["cursor"] = page["next_cursor"]

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

    # --- operations -------------------------------------------------------------------------------------

    def start_purge(self, topics: list[str] | None = None) -> Json:
        """Begin to remove the bytes of what is deleted by now; ask `purge` how it goes."""
        return self._ask("POST", "/v0/admin/purge", {"topics": topics})

    def purge(self, purge_id: str) -> Json:
        return self._ask("GET", f"/v0/admin/purge/{quote(purge_id, safe='')}")

    def hold_files(self) -> Json:
        """Which files make up a backup of this moment. They stay as they are while the hold is renewed."""
        return self._ask("POST", "/v0/admin/backup")

    def renew_hold(self, hold: str) -> Json:
        return self._ask("POST", f"/v0/admin/backup/{quote(hold, safe='')}/renew")

    def release_hold(self, hold: str) -> Json:
        return self._ask("DELETE", f"/v0/admin/backup/{quote(hold, safe='')}")
