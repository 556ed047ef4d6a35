"""A server process as Spark jobs meet it, and short ways of filling and reading its topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import httpx

from tests.support import ServerProcess

Row = dict[str, Any]


class Server(ServerProcess):
    """It takes the same port again when it is restarted, as it would in real life."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        super().__init__(directory, **environment)
        self.data_dir.mkdir()
        self.http = httpx.Client(timeout=30)

    def start(self, **environment: str) -> Self:
        super().start(**environment)
        self.environment["TOPICS_PORT"] = str(self.host_and_port[1])
        return self

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, self.url + path, json=body)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def configure(self, topic: str, **config: Any) -> None:
        self.ask("PUT", f"/v0/topics/{topic}", config)

    def append(self, topic: str, *records: Any, **extra: Any) -> list[int]:
        """Values become records with that `data`; dicts with a `data` key are records already."""
        full = [r if isinstance(r, dict) and "data" in r else {"data": r} for r in records]
        seqs: list[int] = self.ask("POST", f"/v0/topics/{topic}", {"records": full, **extra})["seqs"]
        return seqs

    def fill(self, topic: str, count: int, start: int = 0) -> None:
        for first in range(start, start + count, 10_000):
            self.append(topic, *range(first, min(first + 10_000, start + count)))

    def delete(self, topic: str, **selector: Any) -> None:
        self.ask("POST", f"/v0/topics/{topic}/delete", selector)

    def drop(self, topic: str) -> None:
        self.ask("DELETE", f"/v0/topics/{topic}")

    def state(self, topic: str) -> Any:
        return self.ask("GET", f"/v0/topics/{topic}")

    def diff(self, topic: str, from_seq: int = 0) -> tuple[list[Row], list[Row]]:
        """All records behind a cursor, and the gaps met on the way."""
        records: list[Row] = []
        gaps: list[Row] = []
        while True:
            body = {"from_seq": from_seq, "limit": 1000, "include_tags": True}
            page = self.ask("POST", f"/v0/topics/{topic}/diff", body)
            records += page["records"]
            gaps += [page["tombstone"]] if page["tombstone"] else []
            if page["caught_up"]:
                return records, gaps
            from_seq = page["next_from_seq"]

    def data(self, topic: str) -> list[Any]:
        return [record["data"] for record in self.diff(topic)[0]]
