"""Clients of HTTP/2 that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.http.http2.speaking import Http2Client

Speak = Callable[..., Http2Client]


@pytest.fixture
def speak() -> Iterator[Speak]:
    """`speak(server, reads=False)`."""
    clients: list[Http2Client] = []

    def begin(server: Any, **options: Any) -> Http2Client:
        clients.append(Http2Client(server.address, **options))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()
