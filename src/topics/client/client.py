"""The routes of the server that bulk readers and writers use, one method each."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote, urlencode

from topics.client.connection import PATIENCE_S, Connection
from topics.client.errors import Refused

ARROW_STREAM = "application/vnd.apache.arrow.stream"
LIST_PAGE = 1000

Json = dict[str, Any]


def _path(*names: str) -> str:
    return "/v0/" + "/".join(quote(name, safe="") for name in names)


class Client:
    def __init__(self, url: str, api_key: str | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self._connection = Connection(url, api_key, patience_s=patience_s)

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        encoded = None if body is None else json.dumps(body).encode()
        answer: Json = json.loads(self._connection.fetch(method, path, encoded))
        return answer

    def _listed(self, what: str, **query: str) -> Iterator[Json]:
        """All entries of a list, page by page."""
        query["page_size"] = str(LIST_PAGE)
        while True:
            page = self._ask("GET", f"{_path(what)}?{urlencode(query)}")
            yield from page[what]
            if "next_cursor" not in page:
                return
            query["cursor"] = page["next_cursor"]

    def ready(self) -> Json:
        """Raises while the server is not ready for data."""
        return self._ask("GET", _path("ready"))

    # --- topics -----------------------------------------------------------------------------------------

    def topic(self, name: str) -> Json:
        """State of one topic, without counting as a reader of it."""
        return self._ask("GET", _path("topics", name) + "?touch=false")

    def topic_names(self) -> Iterator[str]:
        return (entry["topic"] for entry in self._listed("topics"))

    def described(self) -> Iterator[Json]:
        """Every topic with its epoch and the lines of its records."""
        return self._listed("topics", detail="true")

    def states(self, names: Iterable[str] | None, *, patient: bool = True) -> dict[str, Json]:
        """Topics as they are now, of these names or all; those that do not exist are not among them."""
        found = {}
        for name in self.topic_names() if names is None else names:
            try:
                found[name] = self.topic(name)
            except Refused as refusal:
                if refusal.code != "topic_not_found":
                    raise
        return found

    # --- where topics are: here, unless there are several servers ---------------------------------------

    # Servers that did not answer the last look, and why.
    silent: Mapping[str, str] = MappingProxyType({})

    def home(self, topic: str) -> str:
        """The server that has the topic; empty where there is but one server."""
        return ""

    def expect(self, homes: Mapping[str, str]) -> None:
        """Where topics were when somebody looked last."""

    # --- bulk reads -------------------------------------------------------------------------------------

    def scan(self, topic: str, request: Json) -> http.client.HTTPResponse:
        """An Arrow IPC stream. Read it to its end, or close the client before the next request."""
        return self._connection.send("POST", _path("topics", topic, "scan"), json.dumps(request).encode())

    def segments(self, topic: str) -> Json:
        return self._ask("GET", _path("topics", topic, "segments"))

    def renew_segments(self, topic: str, snapshot: str) -> Json:
        return self._ask("POST", _path("topics", topic, "segments", snapshot, "renew"), {})

    def release_segments(self, topic: str, snapshot: str) -> Json:
        return self._ask("DELETE", _path("topics", topic, "segments", snapshot))

    def ledger(self, topic: str) -> Json:
        """Which seqs are missing, and why: all ranges, of one life of the topic."""
        path = _path("topics", topic, "ledger") + "?page_size=1000"
        whole = page = self._ask("GET", path)
        while "next_cursor" in page:
            page = self._ask("GET", path + "&" + urlencode({"cursor": page["next_cursor"]}))
            if page["epoch"] != whole["epoch"]:
                # It was replaced by another one of the same name; what was read was about the former.
                whole = page = self._ask("GET", path)
            else:
                whole["ranges"] += page["ranges"]
        whole.pop("next_cursor", None)
        return whole

    # --- cursors ----------------------------------------------------------------------------------------

    def put_cursor(self, topic: str, consumer: str, seq: int, epoch: int) -> Json:
        return self._ask("PUT", _path("topics", topic, "cursors", consumer), {"seq": seq, "epoch": epoch})

    def cursors(self, topic: str) -> Json:
        return self._ask("GET", _path("topics", topic, "cursors"))

    # --- pipelines --------------------------------------------------------------------------------------

    def put_pipeline(self, pipeline: str, kind: str, state: str, why: str | None = None) -> Json:
        """Say how a pipeline fares: it runs, is done, was stopped, or has failed."""
        return self._ask("PUT", _path("pipelines", pipeline), {"kind": kind, "state": state, "why": why})

    # --- deletes ----------------------------------------------------------------------------------------

    def delete_before(self, topic: str, seq: int) -> Json:
        """Remove everything below a seq for good."""
        return self._ask("POST", _path("topics", topic, "delete"), {"before_seq": seq})

    def delete_tagged(self, topic: str, tag: str) -> Json:
        """Remove everything with this tag, or with tags that begin so: `user:*`."""
        return self._ask("POST", _path("topics", topic, "delete"), {"match": tag})

    # --- routers ----------------------------------------------------------------------------------------

    def routers(self) -> Iterator[Json]:
        """Every router with all its settings."""
        for entry in self._listed("routers"):
            yield self._ask("GET", _path("routers", entry["router"]))

    # --- stages -----------------------------------------------------------------------------------------

    def put_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> Json:
        """Rows that name no topic of their own are for `topic`."""
        query = "" if topic is None else "?" + urlencode({"topic": topic})
        path = _path("stages", stage, "parts", part) + query
        answer: Json = json.loads(self._connection.fetch("PUT", path, arrow_stream, ARROW_STREAM))
        return answer

    def stage_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> list[str]:
        """The same, wherever the topics of the rows are; returns what a commit has to name."""
        self.put_part(stage, part, arrow_stream, topic)
        return [part]

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> Json:
        request = {"identity": {"id": identity, "batch": batch}, "parts": parts}
        return self._ask("POST", _path("stages", stage, "commit"), request)

    def drop_stage(self, stage: str) -> Json:
        return self._ask("DELETE", _path("stages", stage))

    # --- operations -------------------------------------------------------------------------------------

    def start_purge(self, topics: list[str] | None = None) -> Json:
        """Begin to remove the bytes of what is deleted by now; ask `purge` how it goes."""
        return self._ask("POST", _path("admin", "purge"), {"topics": topics})

    def purge(self, purge_id: str) -> Json:
        return self._ask("GET", _path("admin", "purge", purge_id))

    def hold_files(self) -> Json:
        """Which files make up a backup of this moment. They stay as they are while the hold is renewed."""
        return self._ask("POST", _path("admin", "backup"))

    def renew_hold(self, hold: str) -> Json:
        return self._ask("POST", _path("admin", "backup", hold, "renew"))

    def release_hold(self, hold: str) -> Json:
        return self._ask("DELETE", _path("admin", "backup", hold))
