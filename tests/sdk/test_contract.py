"""Contract tests through the SDK, blocking and on asyncio: what one of its methods can ask is asked by it
(`contract_methods`), and every page is read again by `items` and `read`, which must agree with the server.

Those that need bytes, streams, several processes or servers of their own stay where they are.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from tests.contract.conftest import names, new_topic, unborn  # noqa: F401, fixtures of the tests
from tests.contract.queues import as_queue
from tests.contract.routers import route
from tests.contract.server import Client, Server, TopicHandle
from tests.contract.test_queues import queue  # noqa: F401, as above
from tests.contract.test_records import tagged  # noqa: F401
from tests.contract.test_topics import listed  # noqa: F401
from tests.sdk.contract_methods import Methods
from tests.support import Answer
from topics import Loss, Lost, Record, Restarted
from topics.client.wire.requests import WireRequest

MODULES = ("test_tombstones", "test_watermarks", "test_node_filter", "test_delete")
LONGER = (
    "test_aimed_deletes",
    "test_diff",
    "test_idempotency",
    "test_ledger",
    "test_topics",
    "test_write",
    "test_queues",
    "test_queue_losses",
    "test_dead_letters",
    "test_routers",
    "test_records",
    "test_epochs",
    "test_cursors",
)
# What shows that a test speaks to the server in another way, or has more than one.
ELSEWHERE = ("boot", "streams", ".raw(", "in_parallel", "restart", "client(", "SocketClient")


def _runs_through(test: Callable[..., None]) -> bool:
    return not any(word in inspect.getsource(test) for word in ELSEWHERE)


def _taken_over() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module_name in MODULES + LONGER:
        module = importlib.import_module(f"tests.contract.{module_name}")
        for name, value in vars(module).items():
            if name.startswith("test_") and _runs_through(value):
                # A method asks more than once, for which a busy machine may need longer than records live.
                is_hasty = "LATER_S" in inspect.getsource(value)
                test = _copy(value)
                found[f"{module_name}__{name[5:]}"] = (
                    pytest.mark.slow(test) if module_name in LONGER or is_hasty else test
                )
    return found


def _copy(test: Any) -> Any:
    """The same test as another function: a mark on it is not one on the test that it comes from."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__annotations__ = test.__annotations__
    copy.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
    return copy


globals().update(_taken_over())


class SdkClient(Client):
    """Over the SDK's connections; what one of its methods says is said by that method."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        # What is written out byte by byte has to arrive like that.
        if not headers and not isinstance(body, bytes):
            answer = self._methods.perform(method, path, body)
            if answer is None and self._methods.is_refused:
                answer = super().send(method, path, body)
                assert answer.status >= 400, (method, path, body)
            if answer is not None:
                return answer
        answer = super().send(method, path, body, **headers)
        if method == "GET" and not headers:
            self._methods.compare(path, answer)
        return answer

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        given = dict(headers or {})
        kind = given.pop("Content-Type", "application/json")
        response = self._methods.surface.exchange(
            WireRequest(
                method=method, target=path, body=body, content_type=kind, headers=tuple(given.items())
            )
        )
        return Answer(response.status, response.headers, response.body)

    def close(self) -> None:
        """The server's, which has them made."""


class SdkServer(Server):
    kind = "blocking"
    _methods: Methods | None = None

    @property
    def methods(self) -> Methods:
        if self._methods is None:
            self._methods = Methods(self.kind, f"http://{self.address}")
        return self._methods

    def client(self, token: str | None = None) -> Client:
        return SdkClient(self.methods)

    def items(self, topic: str, **choice: Any) -> list[Record[Any] | Lost | Restarted]:
        found: list[Any] = self.methods.surface.run(lambda client: client.topic(topic).items(**choice))
        return found

    def read(self, topic: str, **choice: Any) -> list[Record[Any]]:
        found: list[Any] = self.methods.surface.run(lambda client: client.topic(topic).read(**choice))
        return found

    def hang_up(self) -> None:
        super().hang_up()
        if self._methods is not None:
            self._methods.close()
            self._methods = None

    def topic(self, name: str, **config: Any) -> TopicHandle:
        handle = SdkTopicHandle(self, name)
        handle.put(**config)
        return handle


class SdkTopicHandle(TopicHandle):
    server: SdkServer

    def diff(self, from_seq: int = 0, **fields: Any) -> Any:
        page = super().diff(from_seq, **fields)
        # What only the wire has, or names a life, is beside the point here.
        if fields.keys() <= {"node", "limit", "include_tags", "include_meta"}:
            self._compare(page, from_seq, fields.get("node"))
        return page

    def _compare(self, page: Any, from_seq: int, node: Any) -> None:
        items = self.server.items(self.name, from_seq=from_seq, node=node)
        records = [item for item in items if isinstance(item, Record)]
        first = items[0] if items else None
        gap = page["tombstone"]
        if gap is None:
            assert first is None or isinstance(first, Record) or not page["records"]
        elif gap["reason"] == "recreated":
            assert isinstance(first, Restarted)
        else:
            assert isinstance(first, Lost)
            assert (first.gap_from, first.gap_to) == (gap["gap_from"], gap["gap_to"])
            assert (first.reason, first.missed_estimate) == (gap["reason"], gap["missed_estimate"])
        shown = [(record["$seq"], record["$ts"], record["data"]) for record in page["records"]]
        assert shown == [(item.seq, item.ts, item.data) for item in records[: len(shown)]]
        if gap is not None:
            with pytest.raises(Loss):
                self.server.read(self.name, from_seq=from_seq, node=node)
        elif len(items) == len(records):
            assert self.server.read(self.name, from_seq=from_seq, node=node) == records


@pytest.fixture(scope="module", params=["blocking", "asyncio"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    server = SdkServer(tmp_path_factory.mktemp("shared") / "data")
    server.kind = request.param
    server.start()
    yield server
    server.kill()


def test_methods_make_the_requests(server: SdkServer, names: Iterator[str]) -> None:  # noqa: F811
    topic = server.topic(next(names))
    topic.write(1)
    topic.write(2, 3)
    topic.delete(seqs=[1])
    topic.state()
    topic.put(cap_records=5)
    assert topic.state()["config"]["cap_records"] == 5
    server.send("GET", f"{topic.path}/records/2").ok()
    server.send("GET", f"{topic.path}/records/1").refused(410, "record_gone")
    server.send("PUT", f"{topic.path}/cursors/lake", {"seq": 2}).ok(201)
    for path in (f"{topic.path}/ledger", f"{topic.path}/cursors", f"/v0/topics?prefix={topic.name}"):
        server.send("GET", path).ok()
    jobs = as_queue(server.topic(next(names), type="queue"))
    jobs.fill(3)
    assert jobs.claimed(3) == [1, 2, 3]
    for verb, seq in (("extend", 1), ("ack", 1), ("nack", 2)):
        jobs.answer(verb, seq)
    route(topic, jobs, "copies")
    server.send("GET", "/v0/routers").ok()
    server.send("DELETE", "/v0/routers/copies").ok()
    topic.drop().ok()
    asked = (
        "ack claim configure create cursors delete describe drop extend get ledger list_topics nack route"
        " routers unroute write write_many"
    )
    assert server.methods.called.keys() >= set(asked.split())
