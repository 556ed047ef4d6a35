"""What `h2` does not bound of what clients send: the size of frames, and how many of them ask for nothing."""

from collections.abc import Callable

MOST_FRAME_BYTES = 16_384
_PREFACE_BYTES = 24
# A length of three bytes, and then kind, flags and stream.
_LENGTH_BYTES, _REST_BYTES = 3, 6

# What it may spend at once, and how much of it comes back with time.
MOST = 1000.0
PER_S = 50.0
# A frame that asks for nothing.
FRAME = 1
SETTINGS = 5
# A request that is taken back before its answer has gone: it cost us nearly as much as one that is answered.
RESET = 10
STREAM_LEFT = 3
# What an answer earns: those who do ask may take back as much. And what they are sent is told by two frames
# that it has arrived.
ANSWER = 10
DATA = 2


class FrameSizes:
    """Whether frames are as small as agreed on: seen from their first bytes, while `h2` waits for the last.

    It would keep 16 MiB of a frame before it refuses it.
    """

    __slots__ = ("_length", "_skip")

    def __init__(self) -> None:
        # How much is left of the frame that is being read, and what is known of the next one's length.
        self._skip = _PREFACE_BYTES
        self._length = b""

    def fit(self, piece: bytes) -> bool:
        """Those in the next piece of the input."""
        at, end = 0, len(piece)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            missing = _LENGTH_BYTES - len(self._length)
            self._length += piece[at : at + missing]
            at += missing
            if len(self._length) == _LENGTH_BYTES:
                length = int.from_bytes(self._length)
                if length > MOST_FRAME_BYTES:
                    return False
                self._length = b""
                self._skip = _REST_BYTES + length
        return True


class Calm:
    """How much a client may keep us busy and ask for nothing: pings, settings, requests taken back."""

    __slots__ = ("_clock_s", "_left", "_since")

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._left = MOST
        self._since = clock_s()

    def spend(self, cost: int) -> bool:
        """False when it was too much."""
        self._left -= cost
        if self._left < 0:
            now = self._clock_s()
            self._left = min(self._left + (now - self._since) * PER_S, MOST)
            self._since = now
        return self._left >= 0

    def earn(self, amount: int) -> None:
        self._left = min(self._left + amount, MOST)
