"""Clients that go on whatever happens to the server: writers, deleters, queue workers, watchers."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.kill.known import Deletion, Known, text
from tests.support import ServerProcess

# What a dead or dying server looks like from outside.
GONE = (OSError, http.client.HTTPException, EOFError, json.JSONDecodeError)


class Caller:
    """One connection, made again when it broke."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        try:
            connection = self._connect()
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except BaseException:
            self.close()
            raise

    def post_in_one_piece(self, path: str, body: bytes) -> tuple[int, Any]:
        """As clients do that write again and again: the same head each time, and the body with it."""
        head = f"POST {path} HTTP/1.1\r\nHost: topics.test\r\nContent-Type: application/json\r\n"
        try:
            connection = self._connect()
            if connection.sock is None:
                connection.connect()
            connection.sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = http.client.HTTPResponse(connection.sock, method="POST")
            answer.begin()
            return answer.status, json.loads(answer.read())
        except BaseException:
            self.close()
            raise

    def stream(self, path: str, last_event_id: str) -> Iterator[dict[str, str]]:
        """Server-sent events, as dictionaries of their fields."""
        connection = self._connect()
        headers = {"Accept": "text/event-stream"} | (
            {"Last-Event-ID": last_event_id} if last_event_id else {}
        )
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ConnectionError(answer.status)
        event: dict[str, str] = {}
        for raw in answer:
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(":")
                event[name] = value.removeprefix(" ")
            elif event:
                yield event
                event = {}

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._server.host_and_port, timeout=20)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Client(threading.Thread):
    """Repeats its one step until told to stop; a server that is away makes it wait a little."""

    def __init__(self, name: str, server: ServerProcess, known: Known, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self.known = known
        self.caller = Caller(server)
        self.random = random.Random(f"{seed}/{name}")
        self.stopping = threading.Event()
        self.steps = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.step()
                self.steps += 1
            except GONE:
                self.stopping.wait(0.02)
            except Exception as error:
                self.known.trouble.append(f"{self.name}: {error!r}")
                return
        self.caller.close()

    def step(self) -> None:
        raise NotImplementedError

    def expect(self, status: int, answer: Any, *allowed: int) -> bool:
        """False for an answer that says no; anything unheard of is trouble."""
        if status in (200, 201):
            return True
        if status not in (429, 503, *allowed):
            self.known.trouble.append(f"{self.name}: {status} {answer}")
        time.sleep(0.01)
        return False


class Writer(Client):
    topic: str

    def step(self) -> None:
        tag = f"tag-{self.random.randrange(8)}"
        payloads = [
            text({"by": self.name, "n": f"{self.steps}.{index}.{self.random.randrange(10**9)}"})
            for index in range(self.random.choice((1, 1, 1, 2, 20)))
        ]
        self.known.asked(self.topic, payloads)
        records = [{"data": json.loads(payload), "tag": tag} for payload in payloads]
        status, answer = self.caller.ask("POST", f"/v0/topics/{self.topic}", {"records": records})
        if self.expect(status, answer):
            self.known.written(self.topic, answer["seqs"], payloads, tag)


class PlainWriter(Client):
    """One record after the other, without anything but data: those of several are written in one go."""

    topic: str

    def step(self) -> None:
        data = {"by": self.name, "n": f"{self.steps}.{self.random.randrange(10**9):09}"}
        self.known.asked(self.topic, [text(data)])
        body = json.dumps({"records": [{"data": data}]}, separators=(",", ":")).encode()
        status, answer = self.caller.post_in_one_piece(f"/v0/topics/{self.topic}", body)
        if self.expect(status, answer):
            self.known.written(self.topic, answer["seqs"], [text(data)], "")


class Deleter(Client):
    topic: str

    def step(self) -> None:
        time.sleep(0.03)
        head = self.known.topics[self.topic].head
        if self.random.random() < 0.5:
            deletion = Deletion(tag=f"tag-{self.random.randrange(8)}")
            body: dict[str, Any] = {"match": ["tag", "Eq", deletion.tag]}
        else:
            deletion = Deletion(before_seq=max(head - self.random.randrange(50, 400), 0))
            body = {"before_seq": deletion.before_seq}
        meant = self.known.deleting(self.topic, deletion)
        status, answer = self.caller.ask("POST", f"/v0/topics/{self.topic}/delete", body)
        if self.expect(status, answer):
            self.known.deleted(self.topic, meant)


class Worker(Client):
    """Takes jobs and finishes them; what it was told is finished must never be seen again."""

    topic: str

    def step(self) -> None:
        node = {"node": self.name}
        status, answer = self.caller.ask(
            "POST", f"/v0/topics/{self.topic}/claim", {**node, "max": 8, "lease_ms": 2000}
        )
        if not self.expect(status, answer):
            return
        claimed = answer["claimed"]
        for job in claimed:
            self.known.saw(self.topic, job["$seq"], text(job["data"]))
        if not claimed:
            time.sleep(0.02)
            return
        seqs = [job["$seq"] for job in claimed if self.random.random() < 0.9]
        self.known.deleting(self.topic, Deletion(seqs=frozenset(seqs)))
        status, answer = self.caller.ask("POST", f"/v0/topics/{self.topic}/ack", {**node, "seqs": seqs})
        if self.expect(status, answer):
            done = frozenset(seqs) - frozenset(answer["skipped"])
            self.known.deleted(self.topic, Deletion(seqs=done, must=done))


class Watcher(Client):
    """Follows topics from the beginning, and goes on after every break where it was."""

    topics: tuple[str, ...]

    def __init__(self, name: str, server: ServerProcess, known: Known, seed: str) -> None:
        super().__init__(name, server, known, seed)
        self.last_id = ""
        self.cursors: dict[str, int] = {}

    def step(self) -> None:
        body = {"topics": {name: {"from_seq": 0} for name in self.topics}, "heartbeat_ms": 1000}
        status, answer = self.caller.ask("POST", "/v0/watch", body)
        if not self.expect(status, answer):
            return
        try:
            for event in self.caller.stream(answer["stream_url"], self.last_id):
                self.take(event)
                if self.stopping.is_set():
                    return
        finally:
            self.caller.close()

    def take(self, event: dict[str, str]) -> None:
        self.last_id = event.get("id", self.last_id)
        kind = event.get("event")
        if kind not in ("record", "tombstone"):
            return
        body = json.loads(event["data"])
        topic = body["topic"]
        cursor = self.cursors.get(topic, 0)
        if kind == "tombstone":
            self.cursors[topic] = max(cursor, body["gap_to"])
            return
        for record in body["records"]:
            if record["$seq"] <= cursor:
                self.known.trouble.append(f"{self.name}: {topic} went back from {cursor} to {record['$seq']}")
            if record["$seq"] > cursor + 1 and not self.known.topics[topic].deletions:
                self.known.trouble.append(f"{self.name}: {topic} leapt from {cursor} to {record['$seq']}")
            cursor = record["$seq"]
            self.known.saw(topic, cursor, text(record["data"]))
        self.cursors[topic] = cursor
