"""The server as its users meet it: a process of its own, spoken to in bytes over a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from tests.support import Answer, ServerProcess, Wire

PATIENCE_S = ServerProcess.patience_s


def in_parallel(*calls: Callable[[], None]) -> None:
    """Run all of them at the same time; what one raises is raised here."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()


class Client:
    """One keep-alive connection."""

    def __init__(self, address: tuple[str, int], token: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
        self._token = token

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        sent |= headers or {}
        self._connection.request(method, path, body, sent)
        return Answer.read(self._connection)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """`body` as JSON; bytes go out as they are, declared as JSON too."""
        if body is None:
            return self.request(method, path, None, headers)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(method, path, data, {"Content-Type": "application/json"} | headers)

    def close(self) -> None:
        self._connection.close()


class Server(ServerProcess):
    """A data directory, and the process that serves it just now: the command as it is installed."""

    command = (str(Path(sys.executable).with_name("topics")), "serve")

    def __init__(self, data_dir: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(data_dir.parent, **(environment or {}))
        self.data_dir = data_dir
        # Other directories may stand beside this one, each with its server.
        self.port_file = data_dir.with_name(data_dir.name + ".port")
        self.log_file = data_dir.with_name(data_dir.name + ".log")
        self._client: Client | None = None

    def probe(self) -> Answer:
        # Probes may be closed too; the first key opens them.
        token = self.environment.get("TOPICS_API_KEYS", "").partition(",")[0].partition(":")[0].strip()
        return self.fresh_request("GET", "/readyz", None, {"Authorization": f"Bearer {token}"})

    def end(self, number: int) -> int:
        self.hang_up()
        return super().end(number)

    def stop(self) -> None:
        assert self.end(signal.SIGTERM) == 0, self.log()

    def restart(self, *, cleanly: bool, **environment: str) -> Self:
        if cleanly:
            self.stop()
        else:
            self.kill()
        return self.start(**environment)

    # Talking to it

    def client(self, token: str | None = None) -> Client:
        return Client(self.host_and_port, token)

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        if self._client is None:
            self._client = self.client()
        return self._client.send(method, path, body, **headers)

    def fresh_request(self, method: str, path: str, *args: Any) -> Answer:
        """On a connection of its own."""
        with contextlib.closing(self.client()) as client:
            return client.request(method, path, *args)

    def topic(self, name: str, **config: Any) -> TopicHandle:
        """A topic, created with this config."""
        handle = TopicHandle(self, name)
        handle.put(**config)
        return handle

    @contextlib.contextmanager
    def raw(self, data: bytes = b"") -> Iterator[Wire]:
        """A bare connection on which `data` has been sent."""
        wire = Wire(self.host_and_port, patience_s=PATIENCE_S)
        try:
            wire.send(data)
            yield wire
        finally:
            wire.close()


class TopicHandle:
    """One topic by name. Every page read through it is checked against what always holds."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.path = f"/v0/topics/{name}"

    def put(self, **config: Any) -> Any:
        answer = self.server.send("PUT", self.path, config)
        return answer.ok(201 if answer.status == 201 else 200)

    def post(self, body: Any, query: str = "", **headers: str) -> Answer:
        return self.server.send("POST", self.path + query, body, **headers)

    def write(self, *data: Any, **fields: Any) -> Any:
        """One batch, a record for each value of `data`."""
        answer = self.post({"records": [{"data": value} for value in data], **fields})
        return answer.ok(201 if answer.status == 201 else 200)

    def records(self, *records: dict[str, Any], **fields: Any) -> Any:
        """One batch of records written out in full."""
        answer = self.post({"records": list(records), **fields})
        return answer.ok(201 if answer.status == 201 else 200)

    def fill(self, count: int) -> None:
        """So many single-record writes."""
        for number in range(count):
            self.write(number)

    def state(self, query: str = "?touch=false") -> Any:
        return self.server.send("GET", self.path + query).ok()

    def diff(self, from_seq: int = 0, **fields: Any) -> Any:
        return checked_page(self.ask_diff(from_seq=from_seq, **fields).ok(), from_seq)

    def ask_diff(self, **fields: Any) -> Answer:
        return self.server.send("POST", self.path + "/diff", fields)

    def seqs(self, from_seq: int = 0, **fields: Any) -> list[int]:
        return [record["$seq"] for record in self.diff(from_seq, **fields)["records"]]

    def gap(self, from_seq: int = 0) -> tuple[int, int, str] | None:
        tombstone = self.diff(from_seq)["tombstone"]
        return tombstone and (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"])

    def drain(self, from_seq: int = 0, **fields: Any) -> tuple[list[Any], list[Any]]:
        """All records and all tombstones on the way to the head."""
        records: list[Any] = []
        gaps: list[Any] = []
        while True:
            page = self.diff(from_seq, **fields)
            records += page["records"]
            if page["tombstone"] is not None:
                gaps.append(page["tombstone"])
            from_seq = page["next_from_seq"]
            if page["caught_up"]:
                return records, gaps

    def delete(self, **selector: Any) -> Any:
        return self.ask_delete(selector).ok()

    def ask_delete(self, selector: Any) -> Answer:
        return self.server.send("POST", self.path + "/delete", selector)

    def drop(self, query: str = "") -> Answer:
        return self.server.send("DELETE", self.path + query)


PAGE_KEYS = {
    "topic",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "caught_up",
    "tombstone",
    "lag",
    "epoch",
    "performance",
}
TOMBSTONE_KEYS = {"gap_from", "gap_to", "reason", "missed_estimate", "earliest_seq", "head_seq"}


def checked_page(page: Any, from_seq: int) -> Any:
    """What holds of every diff answer, whatever the topic has been through."""
    assert set(page) == PAGE_KEYS
    head, floor, after = page["head_seq"], page["earliest_seq"], page["next_from_seq"]
    seqs = [record["$seq"] for record in page["records"]]
    assert page["caught_up"] is (after == head)
    assert page["lag"] == head - after
    assert 1 <= floor <= head + 1
    assert seqs == sorted(set(seqs))
    assert all(floor <= seq <= after for seq in seqs)
    assert isinstance(page["performance"]["records_scanned"], int)
    assert page["performance"]["records_scanned"] >= len(seqs)
    times = [record["$ts"] for record in page["records"]]
    assert times == sorted(times)
    gap = page["tombstone"]
    recreated = gap is not None and gap["reason"] == "recreated"
    if not recreated:
        assert after >= from_seq
        assert all(seq > from_seq for seq in seqs)
    assert page["caught_up"] or after > from_seq or gap is not None
    if gap is not None:
        _check_tombstone(gap, page, from_seq)
    return page


def _check_tombstone(gap: Any, page: Any, from_seq: int) -> None:
    assert set(gap) - {"previous_epoch"} == TOMBSTONE_KEYS
    assert gap["reason"] == "recreated" or "previous_epoch" not in gap
    assert gap["earliest_seq"] == page["earliest_seq"]
    assert gap["head_seq"] == page["head_seq"]
    assert gap["missed_estimate"] == max(gap["gap_to"] - gap["gap_from"] + 1, 0)
    if gap["reason"] != "recreated":
        assert gap["gap_from"] == from_seq + 1
        assert gap["gap_to"] >= gap["gap_from"]
        # A front gap ends at the floor; one with live records below it ends inside the log.
        assert gap["gap_to"] == page["earliest_seq"] - 1 or page["earliest_seq"] <= from_seq
