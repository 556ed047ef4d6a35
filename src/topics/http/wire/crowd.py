"""Connections that send the same kind of request again and again are read together, and answered together.

    a request of a kept connection travels ─▶ the connection joins the crowd ─▶ one call reads all of its
    sockets that have something ─▶ what travels joins its convoys, all else goes to `data_received`

The transport stays the owner of its socket, and only pauses its reading. It reads again as soon as anything
about the connection is not as usual: its client has ended its side, it is to be left alone for a while, or it
becomes a stream. Without the accelerator there is no crowd, and each transport reads for itself.
"""

import asyncio
from typing import Any, Protocol

from topics.http.door.readiness import Readiness
from topics.http.wire.answer_heads import Heads
from topics.http.wire.known_requests import KnownRequest, KnownRequests
from topics.log import Share, Topic
from topics.values import accelerator

# Instead of the descriptor of a socket: not in the crowd; and not to be asked again.
OUTSIDE, NEVER = -1, -2


class Member(Protocol):
    """A connection, as the crowd sees it. `sockets.c` knows more of its fields, by their names."""

    transport: asyncio.Transport
    # Of its socket, if that is read here.
    descriptor: int

    def data_received(self, data: bytes) -> None: ...

    def leave_crowd(self) -> None:
        """The transport reads its socket itself, as it did at first."""


class Crowd:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        known_requests: KnownRequests,
        heads: Heads,
        readiness: Readiness,
        members: type[Member],
    ) -> None:
        self._loop = loop
        self._known_requests = known_requests
        self._heads = heads
        self._readiness = readiness
        self._members = members
        self._sockets: Any = accelerator.native.Sockets(members, KnownRequest, Topic)
        loop.add_reader(self._sockets.fileno(), self._read)

    def close(self) -> None:
        self._loop.remove_reader(self._sockets.fileno())
        self._sockets.close()

    def admit(self, connection: Member) -> None:
        """From now on, its socket is read here."""
        transport = connection.transport
        socket = transport.get_extra_info("socket")
        is_plain = socket is not None and transport.get_extra_info("sslcontext") is None
        if not is_plain or connection.__class__ is not self._members:
            connection.descriptor = NEVER
            return
        transport.pause_reading()
        connection.descriptor = socket.fileno()
        try:
            self._sockets.add(connection)
        except (OSError, ValueError, MemoryError):
            connection.descriptor = NEVER
            transport.resume_reading()

    def dismiss(self, connection: Member) -> None:
        self._sockets.remove(connection)
        connection.descriptor = OUTSIDE

    def answer(self, asking: list[Any], bodies: list[bytes]) -> list[int]:
        """The usual answer to each; those who have to be answered in another way, by their index."""
        return self._sockets.answer(asking, bodies, self._heads.json_200)  # type: ignore[no-any-return]

    def tell(
        self, shares: list[Share[Any]], total_ms: float, wal_ms: float, fsync_ms: float
    ) -> tuple[int, list[Any], list[bytes]]:
        """Those who wrote one record each hear of their seqs, and how long it took.

        Returns how many have heard; those who have to be answered in another way, and with what.
        """
        answered: tuple[int, list[Any], list[bytes]] = self._sockets.tell(
            shares, self._heads.json_200, total_ms, wal_ms, fsync_ms
        )
        return answered

    def _read(self) -> None:
        heads = self._known_requests.heads if self._readiness.open else None
        travelling, others, ended, broken = self._sockets.receive(heads)
        try:
            if others or ended or broken:
                self._hand_over(others, ended, broken)
        finally:
            # What was handed over may go along.
            for convoys, several in travelling:
                convoys.join_all(several)

    def _hand_over(
        self, others: list[tuple[Member, bytes]], ended: list[Member], broken: list[Member]
    ) -> None:
        for connection in ended:
            # The transport finds the same end, behind what was read here.
            connection.leave_crowd()
        for connection in broken:
            connection.transport.abort()
        for connection, data in others:
            try:
                connection.data_received(data)
            except Exception as error:
                self._fail(connection, error)

    def _fail(self, connection: Member, error: Exception) -> None:
        """As a transport does when its protocol has a defect."""
        self._loop.call_exception_handler(
            {"message": "a connection could not take its input", "exception": error, "protocol": connection}
        )
        connection.transport.abort()
