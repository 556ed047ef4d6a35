"""Contract tests through the SDK, blocking and on asyncio: their requests over its connections, and every
page that they read once more as `items`, which must agree with what the server said.

Those that need bytes, streams, several processes or servers of their own stay where they are.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from tests.contract.conftest import names, new_topic, unborn  # noqa: F401, fixtures of the tests
from tests.contract.server import Client, Server, TopicHandle
from tests.support import Answer
from topics import AsyncTopics, Lost, Record, Restarted, Topics
from topics.client.wire.effects import Exchange, Operation, Request, Response

MODULES = ("test_tombstones", "test_watermarks", "test_node_filter")
LONGER = (
    "test_aimed_deletes",
    "test_delete",
    "test_diff",
    "test_idempotency",
    "test_ledger",
    "test_topics",
    "test_write",
)
# What shows that a test speaks to the server in another way, or has more than one.
ELSEWHERE = ("boot", "streams", ".raw(", "in_parallel", "restart", "client(")


def _runs_through(test: Callable[..., None]) -> bool:
    return not any(word in inspect.getsource(test) for word in ELSEWHERE)


def _taken_over() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module_name in MODULES + LONGER:
        module = importlib.import_module(f"tests.contract.{module_name}")
        for name, value in vars(module).items():
            if name.startswith("test_") and _runs_through(value):
                test = _copy(value)
                found[f"{module_name}__{name[5:]}"] = (
                    pytest.mark.slow(test) if module_name in LONGER else test
                )
    return found


def _copy(test: Any) -> Any:
    """The same test as another function: a mark on it is not one on the test that it comes from."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__annotations__ = test.__annotations__
    copy.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
    return copy


globals().update(_taken_over())


class Surface:
    """Either client, for those who block."""

    def __init__(self, kind: str, url: str) -> None:
        self._runner = asyncio.Runner() if kind == "asyncio" else None
        self._client: Any = AsyncTopics(url) if self._runner else Topics(url)

    def exchange(self, request: Request) -> Response:
        def once() -> Operation[Response]:
            return (yield Exchange(request))

        result = self._client._io.run(once())
        return self._runner.run(result) if self._runner else result

    def items(self, topic: str, **choice: Any) -> list[Record[Any] | Lost | Restarted]:
        items = self._client.topic(topic).items(**choice)
        if self._runner is None:
            return list(items)

        async def gather() -> list[Any]:
            return [item async for item in items]

        return self._runner.run(gather())

    def close(self) -> None:
        closing = self._client.close()
        if self._runner:
            self._runner.run(closing)
            self._runner.close()


class SdkClient(Client):
    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        given = dict(headers or {})
        kind = given.pop("Content-Type", "application/json")
        response = self._surface.exchange(
            Request(method=method, target=path, body=body, content_type=kind, headers=tuple(given.items()))
        )
        return Answer(response.status, response.headers, response.body)

    def close(self) -> None:
        self._surface.close()


class SdkServer(Server):
    kind = "blocking"
    reading: Surface | None = None

    def client(self, token: str | None = None) -> Client:
        return SdkClient(self._surface())

    def _surface(self) -> Surface:
        return Surface(self.kind, f"http://{self.address}")

    def items(self, topic: str, **choice: Any) -> list[Record[Any] | Lost | Restarted]:
        self.reading = self.reading or self._surface()
        return self.reading.items(topic, **choice)

    def hang_up(self) -> None:
        super().hang_up()
        if self.reading is not None:
            self.reading.close()
            self.reading = None

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


@pytest.fixture(scope="module", params=["blocking", "asyncio"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    server = SdkServer(tmp_path_factory.mktemp("shared") / "data")
    server.kind = request.param
    server.start()
    yield server
    server.kill()
