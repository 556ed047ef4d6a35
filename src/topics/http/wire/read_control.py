"""Pausing, resuming and discarding the input of one transport."""

import asyncio


class ReadControl:
    __slots__ = ("_discarded", "_transport", "is_half_closed", "is_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._discarded = 0
        self.is_paused = False
        # The client has ended its side of the connection.
        self.is_half_closed = False

    def pause(self) -> None:
        if not (self.is_paused or self.is_half_closed or self._transport.is_closing()):
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_paused and not (self.is_half_closed or self._transport.is_closing()):
            self.is_paused = False
            self._transport.resume_reading()

    def half_close(self) -> None:
        """Note that no more input comes."""
        self.is_half_closed = True

    def hand_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the input that follows to another protocol."""
        # A transport finds out how to read for its protocol when its reading begins.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        if not self.is_paused:
            self._transport.resume_reading()

    def linger(self) -> None:
        """End our side. The client still gets to read the last reply: closing at once, with input that is
        not read, would reset the connection."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume()

    def discard(self, size: int, most: int) -> None:
        """Count input that nobody reads, and abort the connection when it is too much."""
        self._discarded += size
        if self._discarded > most:
            self._transport.abort()
