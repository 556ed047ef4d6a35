"""Long-lived connections to a real server: watch streams, work streams and sockets, closed with the test."""

from __future__ import annotations

from typing import Any

from tests.contract.server import Client, Server
from tests.http.streaming import EventReader, Frame, SocketClient
from tests.support import Answer


class Streams:
    """Opens streams on any server and remembers to close them."""

    def __init__(self) -> None:
        self._open: list[EventReader | SocketClient | Client] = []

    def get(self, server: Server, path: str, **headers: str) -> EventReader:
        """The answer to a GET of an event stream, whether it was opened or refused."""
        reader = EventReader(server.host_and_port, path, headers)
        self._open.append(reader)
        return reader

    def events(self, server: Server, path: str, **headers: str) -> EventReader:
        """An opened event stream, past its first line."""
        reader = self.get(server, path, **headers)
        assert reader.status == 200, reader.body
        assert reader.block() == "retry: 2000"
        return reader

    def watch(self, server: Server, topics: Any, **fields: Any) -> EventReader:
        return self.events(server, session(server, topics, **fields)["stream_url"])

    def work(self, server: Server, topic: str, query: str, **headers: str) -> EventReader:
        return self.events(server, f"/v0/topics/{topic}/work?{query}", **headers)

    def socket(self, server: Server, **headers: str) -> SocketClient:
        client = SocketClient(server.host_and_port, headers)
        self._open.append(client)
        return client

    def close_with(self, client: Client) -> None:
        """A connection that is to end with them."""
        self._open.append(client)

    def close(self) -> None:
        for stream in self._open:
            stream.close()
        self._open.clear()


def ask_session(server: Server, topics: Any, query: str = "", **fields: Any) -> Answer:
    return server.send("POST", "/v0/watch" + query, {"topics": topics, **fields})


def session(server: Server, topics: Any, query: str = "", **fields: Any) -> Any:
    """A watch session on these topics: names, or a map of names to positions."""
    if not isinstance(topics, dict):
        topics = {name: {} for name in topics}
    return ask_session(server, topics, query, **fields).ok()


def told(frames: list[Frame]) -> list[tuple[str, Any]]:
    """Frames in short: seqs of records, ranges of gaps, names of the rest."""
    return [(frame.event, in_short(frame.event, frame.data)) for frame in frames]


def in_short(event: str, data: Any) -> Any:
    if event == "record":
        return [record["$seq"] for record in data["records"]]
    if event == "tombstone":
        return (data["gap_from"], data["gap_to"], data["reason"])
    return data["head_seq"]
