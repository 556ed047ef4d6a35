"""Requests of the contract tests, made by the methods of the SDK where one of them asks the same.

The method's own result is held against the answer that came over the wire, which is what the test gets.
What no method says (malformed bodies, other queries) is left to the caller: `perform` gives None. Lists are
asked for in pages of the test's choice; what the method gives, which goes through all pages, is compared.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.support import Answer
from topics import AsyncTopics, Draft, LeaseLost, Refused, Topics
from topics.client.operations.queueing import ERROR_BYTES
from topics.client.operations.settings import resolved
from topics.client.wire.requests import Response, WireRequest

MAX_RECORDS = 10_000
# How rows of lists are told apart, and what of them may change between two looks: time passes, routers copy.
_ROW_NAMES = ("topic", "router", "consumer", "first_seq")
_RESTLESS = {"age_ms", "head_seq", "count", "bytes", "forwarded_total", "effective_priority"}


class Surface:
    """Either client, for those who block; it remembers what the server answered."""

    def __init__(self, kind: str, url: str, node: str | None = None) -> None:
        self._runner = asyncio.Runner() if kind == "asyncio" else None
        # A refusal is what the tests want to see, not what comes after patience.
        self.client: Any = AsyncTopics(url, retry_s=0) if self._runner else Topics(url, retry_s=0)
        if node is not None:
            self.client._claimed_jobs.node = node
        self.heard: list[Response] = []
        self._listen()

    def _listen(self) -> None:
        io = self.client._io

        def awaited(receive: Callable[..., Any]) -> Callable[..., Any]:
            async def hear_awaited(*begun: Any) -> Response:
                response: Response = await receive(*begun)
                if not any(response is heard for heard in self.heard):  # one of them may call the other
                    self.heard.append(response)
                return response

            return hear_awaited

        def attempted(attempt: Callable[..., Any]) -> Callable[..., Any]:
            def hear_attempt(*asked: Any) -> Any:
                begun = attempt(*asked)
                if begun is not None:
                    begun[1].add_done_callback(lambda answer: self.heard.append(answer.result()))
                return begun

            return hear_attempt

        if self._runner:
            io.round_trip, io.finish = awaited(io.round_trip), awaited(io.finish)
            io.attempt = attempted(io.attempt)
        else:
            finish = io._finish

            def hear(*begun: Any) -> Response:
                self.heard.append(finish(*begun))
                return self.heard[-1]

            io._finish = hear

    def run(self, call: Callable[[Any], Any]) -> Any:
        """Of a call of the client what it gives, awaited where it has to be; of an iterator all of it."""
        self.heard.clear()

        async def awaited() -> Any:
            result = call(self.client)
            if hasattr(result, "__aiter__"):
                return [item async for item in result]
            return await result

        if self._runner:
            return self._runner.run(awaited())
        result = call(self.client)
        return list(result) if hasattr(result, "__next__") else result

    def exchange(self, request: WireRequest) -> Response:
        result: Response = self.run(lambda client: client._io.run(client._io.round_trip(request)))
        return result

    def close(self) -> None:
        self.run(lambda client: client.close())
        if self._runner:
            self._runner.close()


class Methods:
    """One of these for each server of the tests."""

    def __init__(self, kind: str, url: str) -> None:
        self._kind = kind
        self._url = url
        self.surface = Surface(kind, url)
        self._workers: dict[str, Surface] = {}
        self._jobs: dict[tuple[str, str, int], Any] = {}
        # Whether the last request was refused by a method itself.
        self.is_refused = False
        # Which methods were called, and how often.
        self.called: Counter[str] = Counter()

    def close(self) -> None:
        for surface in (self.surface, *self._workers.values()):
            surface.close()

    def perform(self, method: str, target: str, body: Any) -> Answer | None:
        self.is_refused = False
        path, _, query = target.partition("?")
        names = [unquote(name) for name in path.removeprefix("/v0/").split("/")]
        try:
            match method, names:
                case "POST", ["topics", name] if not query:
                    return self._write(name, body)
                case "PUT", ["topics", name] if not query and isinstance(body, dict):
                    return self._create(name, body)
                case "GET", ["topics", name, "records", seq] if not query and seq.isdecimal():
                    return self._get(name, int(seq))
                case "GET", ["topics", name] if query == "touch=false":
                    return self._same("describe", lambda client: client.topic(name).describe())
                case "DELETE", ["topics", name] if query in ("", "if_empty=true", "dry_run=true"):
                    more = {query.partition("=")[0]: True} if query else {}
                    return self._same("drop", lambda client: client.topic(name).drop(**more))
                case "POST", ["topics", name, "delete"]:
                    return self._delete(name, body)
                case "POST", ["topics", name, "claim"]:
                    return self._claim(name, body)
                case "POST", ["topics", name, ("ack" | "nack" | "extend") as verb]:
                    return self._settle(name, verb, body)
                case "PUT", ["routers", name] if isinstance(body, dict):
                    return self._route(name, body)
                case "DELETE", ["routers", name] if not query:
                    return self._same("unroute", lambda client: client.unroute(name))
        except (TypeError, ValueError, RecursionError):
            # Refused before anything was sent: only the wire can say it, and the server has to refuse it.
            assert not self.surface.heard
            self.is_refused = True
        return None

    def compare(self, target: str, answer: Answer) -> None:
        """A page of a list, held against the whole list as a method gives it."""
        path, _, query = target.partition("?")
        asked = parse_qs(query)
        if answer.status != 200 or asked.keys() - {"prefix", "page_size", "cursor", "source", "dest"}:
            return
        prefix = asked.get("prefix", [""])[0]
        match [unquote(name) for name in path.removeprefix("/v0/").split("/")]:
            case ["topics"]:
                self._compare(
                    "list_topics", "topics", lambda client: client.list_topics(prefix), asked, answer
                )
            case ["routers"]:
                self._compare("routers", "routers", lambda client: client.routers(), asked, answer)
            case ["topics", name, "ledger"]:
                self._compare("ledger", "ranges", lambda client: client.topic(name).ledger(), asked, answer)
            case ["topics", name, "cursors"]:
                self._compare(
                    "cursors", "cursors", lambda client: client.topic(name).cursors(), asked, answer
                )

    def _compare(
        self, name: str, key: str, call: Callable[[Any], Any], asked: dict[str, Any], answer: Answer
    ) -> None:
        found = self.surface.run(call)
        self.called[name] += 1
        rows = {_identity(row): row for row in map(_settled, (entry.as_dict() for entry in found))}
        assert len(rows) == len(found)
        page = [_settled(_renamed(row)) for row in answer.json[key]]
        assert page == [rows[_identity(row)] for row in page]
        if (
            not asked.keys() - {"prefix", "page_size"}
            and "next_cursor" not in answer.json
            and key != "routers"
        ):
            assert page == [*rows.values()]

    def _call(self, name: str, surface: Surface, call: Callable[[Any], Any]) -> tuple[Any, Answer]:
        """What the method gave (None where it raised a refusal), and the answer to its first request."""
        result = None
        try:
            result = surface.run(call)
        except LeaseLost:
            pass
        except Refused as error:
            _agree(error, surface.heard[-1])
        self.called[name] += 1
        first = surface.heard[0]
        return result, Answer(first.status, first.headers, first.body)

    def _same(self, name: str, call: Callable[[Any], Any]) -> Answer:
        """A method whose result has the wire's keys."""
        result, answer = self._call(name, self.surface, call)
        assert (result is None) == (answer.status >= 400)
        if result is not None:
            assert result.as_dict() == {key.lstrip("$"): value for key, value in answer.json.items()}
        return answer

    # --- records ----------------------------------------------------------------------------------------

    def _write(self, name: str, body: Any) -> Answer | None:
        if not _is_plain_write(body):
            return None
        records, key = body["records"], body.get("idempotency_key")
        drafts: list[Any] = [Draft(**record) for record in records]
        if len(drafts) == 1:
            one = dict(records[0])
            data = one.pop("data")
            ack, answer = self._call(
                "write",
                self.surface,
                lambda client: client.topic(name).write(data, idempotency_key=key, **one),
            )
        else:
            ack, answer = self._call(
                "write_many",
                self.surface,
                lambda client: client.topic(name).write_many(drafts, idempotency_key=key),
            )
        if ack is None:
            return answer
        told = answer.json
        for field in ("topic", "epoch", "first_seq", "last_seq", "count", "deduped"):
            assert getattr(ack, field) == told[field]
        if body.get("return_seqs", True):
            # The SDK does not ask for them: they follow from first and last.
            told["seqs"] = list(range(told["first_seq"], told["last_seq"] + 1))
        else:
            told.pop("seqs", None)
        return Answer(answer.status, answer.headers, json.dumps(told).encode())

    def _get(self, name: str, seq: int) -> Answer:
        record, answer = self._call("get", self.surface, lambda client: client.topic(name).get(seq))
        if record is not None:
            told = answer.json["record"]
            assert (record.topic, record.epoch) == (name, answer.json["epoch"])
            assert (record.seq, record.ts, record.data) == (told["$seq"], told["$ts"], told["data"])
            assert (record.tag, record.node) == (told.get("$tag"), told.get("$node"))
            assert record.meta == told.get("meta")
        return answer

    def _delete(self, name: str, body: Any) -> Answer | None:
        fitting = isinstance(body, dict) and body.keys() <= {"before_seq", "match", "seqs", "dry_run"}
        if not fitting or not isinstance(body.get("match", ""), str) or not body.keys() - {"dry_run"}:
            return None
        if any(value is None for value in body.values()) or not isinstance(body.get("dry_run", True), bool):
            return None
        choice = {"tag" if key == "match" else key: value for key, value in body.items()}
        return self._same("delete", lambda client: client.topic(name).delete(**choice))

    # --- topics and routers -----------------------------------------------------------------------------

    def _create(self, name: str, config: dict[str, Any]) -> Answer | None:
        result, answer = self._call(
            "create", self.surface, lambda client: client.topic(name).create(**config)
        )
        if answer.status == 412:
            return self._configure(name, config)
        assert (result is None) == (answer.status >= 400)
        return answer

    def _configure(self, name: str, config: dict[str, Any]) -> Answer:
        """A PUT sets what it does not name to its default; `configure` leaves that, so all of it is named."""
        whole = resolved(config)
        result, _ = self._call(
            "configure", self.surface, lambda client: client.topic(name).configure(**whole)
        )
        told = self.surface.heard[-1]
        answer = Answer(told.status, told.headers, told.body)
        assert (result is None) == (answer.status >= 400)
        if result is not None:
            assert result.as_dict() == answer.json
        return answer

    def _route(self, name: str, body: dict[str, Any]) -> Answer | None:
        if not body.keys() <= {"source", "dest", "filter"} or not all(
            isinstance(value, str) for value in body.values()
        ):
            return None
        ends = {"source": body.get("source"), "dest": body.get("dest"), "tag": body.get("filter")}
        return self._same("route", lambda client: client.route(name, **ends))

    # --- jobs -------------------------------------------------------------------------------------------

    def _worker(self, node: str) -> Surface:
        if node not in self._workers:
            self._workers[node] = Surface(self._kind, self._url, node)
        return self._workers[node]

    def _claim(self, name: str, body: Any) -> Answer | None:
        if not isinstance(body, dict) or not body.keys() <= {"node", "max", "lease_ms"}:
            return None
        most, lease_ms, node = body.get("max", 1), body.get("lease_ms"), body.get("node")
        if not _is_count(most) or not (lease_ms is None or _is_count(lease_ms)) or not node:
            return None
        state = self.surface.exchange(WireRequest(method="GET", target=f"/v0/topics/{name}?touch=false"))
        self.surface.heard.clear()
        if state.status != 200 or json.loads(state.body)["config"]["type"] != "queue":
            return None
        worker = self._worker(node)
        queue = worker.client.queue(name)
        worker.run(lambda _: queue.describe())
        losses: list[Any] = []
        jobs, _ = self._call(
            "claim", worker, lambda _: queue.claim(most, lease_ms=lease_ms, on_loss=losses.append)
        )
        # Behind the look at the topic that comes first.
        told = worker.heard[1]
        answer = Answer(told.status, told.headers, told.body)
        if jobs is None:
            return answer
        assert bool(losses) == (answer.json["tombstone"] is not None)
        for job, row in zip(jobs, answer.json["claimed"], strict=True):
            assert (job.seq, job.data, job.deliveries) == (row["$seq"], row["data"], row["deliveries"])
            assert (job.tag, job.meta, job.lease_id) == (row.get("$tag"), row.get("meta"), row["lease_id"])
            self._jobs[name, node, job.seq] = job
        return answer

    def _settle(self, name: str, verb: str, body: Any) -> Answer | None:
        mays = {"ack": set(), "nack": {"error", "delay_ms"}, "extend": {"lease_ms"}}[verb]
        if not isinstance(body, dict) or not body.keys() <= {"node", "seqs"} | mays:
            return None
        seqs, node = body.get("seqs"), body.get("node")
        if not isinstance(seqs, list) or len(seqs) != 1 or not isinstance(seqs[0], int):
            return None
        job = self._jobs.get((name, str(node), seqs[0]))
        more = {key: value for key, value in body.items() if key in mays}
        error = more.get("error", "")
        # The SDK cuts longer ones.
        if job is None or not isinstance(error, str) or len(error.encode()) > ERROR_BYTES:
            return None
        if not all(_is_count(more.get(name, 1)) for name in ("delay_ms", "lease_ms")):
            return None
        if verb == "extend" and not more:
            return None
        return self._call(verb, self._worker(str(node)), lambda _: getattr(job, verb)(**more))[1]


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Keys that cannot be attributes have other names."""
    return {{"from": "first_seq", "to": "last_seq"}.get(key, key): value for key, value in row.items()}


def _settled(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if key in _RESTLESS else value for key, value in row.items()}


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in _ROW_NAMES)


def _agree(error: Refused, response: Response) -> None:
    told = json.loads(response.body)["error"]
    assert (error.status, error.code) == (response.status, told["code"])
    assert error.detail == told.get("detail", {})


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_plain_write(body: Any) -> bool:
    """One that `write` or `write_many` can say."""
    if not isinstance(body, dict) or not body.keys() <= {"records", "idempotency_key", "return_seqs"}:
        return False
    records, key = body.get("records"), body.get("idempotency_key")
    if not isinstance(records, list) or not 0 < len(records) <= MAX_RECORDS:
        return False
    if "idempotency_key" in body and not (isinstance(key, str) and key):
        return False
    return isinstance(body.get("return_seqs", True), bool) and all(map(_is_plain_record, records))


def _is_plain_record(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and "data" in record
        and record.keys() <= {"data", "tag", "node", "meta"}
        and all(isinstance(record.get(name, ""), str) for name in ("tag", "node"))
        and isinstance(record.get("meta", {}), dict)
    )
