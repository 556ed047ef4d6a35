"""Small Append frames read together: one behind the other, of one topic, with nothing in them but data.

Single writes make a frame each. Read one by one, most of the time would go into the steps around a checksum.
Here the steps are taken for a thousand frames at a time; what is checked is the same.
"""

from struct import Struct

import numpy as np
from xxhash import xxh3_64_digest

from topics import codec
from topics.codec.frames import SMALL_RECORDS
from topics.storage.frame import HEADER_BYTES, Frame, Kind

# Fewer than these are not worth the while.
MIN_FRAMES = 32
# How much is looked at in one go: twice what the last stretch had, within these bounds.
MIN_WINDOW = 16 * 1024
MAX_WINDOW = 256 * 1024
# Where it was in vain, so much is read alone before it is tried again.
TRY_AGAIN_BYTES = 4 * 1024
# Looked at before anything is hashed: payload length, kind, flags, count, topic.
_LOOK = Struct("<IBB2xI4xQ")
_LOOK_AT = 16
_HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("checksum", "<u4"),
        ("payload_checksum", "<u8"),
        ("payload_length", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("ahead_high", "<u2"),
        ("count", "<u4"),
        ("ahead_low", "<u4"),
        ("topic_id", "<u8"),
        ("first_seq", "<u8"),
        ("ts", "<u8"),
        ("synced", "<u8"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES


class FrameStretch:
    """Intact frames of consecutive seqs."""

    def __init__(self, window: bytes, position: int, starts: np.ndarray, headers: np.ndarray) -> None:
        """`starts`: where in the window they begin, and where the last one ends."""
        self._window = window
        self._starts = starts
        self._headers = headers
        self.position = position
        self.end = position + int(starts[-1])
        self.topic_id = int(headers["topic_id"][0])
        self.first_seq = int(headers["first_seq"][0])
        last = headers[-1]
        self.last_seq = int(last["first_seq"]) + int(last["count"]) - 1
        self.clock_ms = int(last["ts"]) - _ahead_ms(last)

    def parts(self) -> tuple[bytes, bytes]:
        """The rows of all of them, and the lengths of their data."""
        return codec.frame_parts(self._window, self._starts.tobytes())

    def times(self) -> list[tuple[int, int]]:
        """From which record on which time holds: pairs of index and time, the first for index 0."""
        ts, counts = self._headers["ts"], self._headers["count"]
        changes = np.append(0, np.flatnonzero(ts[1:] != ts[:-1]) + 1)
        begins = np.cumsum(counts) - counts
        return list(zip(begins[changes].tolist(), ts[changes].tolist(), strict=True))

    @property
    def frames(self) -> list[Frame]:
        """One by one, for those who have to ask for something in between."""
        starts = self._starts.tolist()
        payloads = memoryview(self._window)
        return [
            Frame(
                int(header["kind"]),
                int(header["flags"]),
                int(header["count"]),
                self.topic_id,
                int(header["first_seq"]),
                int(header["ts"]),
                int(header["synced"]),
                _ahead_ms(header),
                position=self.position + at,
                payload=payloads[at + HEADER_BYTES : end],
            )
            for at, end, header in zip(starts, starts[1:], self._headers, strict=False)
        ]


class StretchReader:
    """Finds them in one file of the journal."""

    def __init__(self, data: memoryview, base: int, border: int) -> None:
        """No stretch has frames below the position `border` and above it."""
        self._data = data
        self._base = base
        self._border = border
        self._window_bytes = MIN_WINDOW
        # Up to here it was tried in vain.
        self._alone_until = 0

    def read(self, behind: Frame | FrameStretch) -> FrameStretch | None:
        """Frames right behind these that go on where they end; None if they are few.

        One that is not intact ends the stretch, whatever is wrong with it.
        """
        at = behind.end - self._base
        if at < self._alone_until:
            return None
        stop = len(self._data)
        if behind.position < self._border:
            stop = min(stop, self._border - self._base)
        reached = self._look_ahead(at, stop, behind.topic_id)
        stretch = None
        if reached is None:
            window = bytes(self._data[at : min(at + self._window_bytes, stop)])
            stretch = _intact_frames(window, behind)
            reached = at + TRY_AGAIN_BYTES
        if stretch is None:
            self._alone_until = reached
            self._window_bytes = MIN_WINDOW
        else:
            self._window_bytes = min(max(2 * (stretch.end - stretch.position), MIN_WINDOW), MAX_WINDOW)
        return stretch

    def _look_ahead(self, at: int, stop: int, topic_id: int) -> int | None:
        """None if enough frames seem to follow; otherwise the offset where something else begins."""
        for _ in range(MIN_FRAMES):
            if at + HEADER_BYTES > stop:
                return at
            length, kind, flags, count, found_topic = _LOOK.unpack_from(self._data, at + _LOOK_AT)
            if found_topic != topic_id or kind != Kind.APPEND or flags or count > SMALL_RECORDS:
                return at
            at += HEADER_BYTES + length
        return None


def _intact_frames(window: bytes, behind: Frame | FrameStretch) -> FrameStretch | None:
    starts = np.frombuffer(
        codec.find_frames(window, behind.topic_id, behind.last_seq + 1, behind.end), np.int64
    )
    headers = _anywhere(window, _HEADER)[starts[:-1]]
    edges = starts.tolist()
    bounds = zip([edge + HEADER_BYTES for edge in edges], edges[1:], strict=False)
    payloads = b"".join([xxh3_64_digest(window[begin:end]) for begin, end in bounds])
    is_intact = headers["payload_checksum"] == np.frombuffer(payloads, ">u8")
    intact = len(headers) if is_intact.all() else int(np.argmin(is_intact))
    if intact < MIN_FRAMES:
        return None
    return FrameStretch(window, behind.end, starts[: intact + 1], headers[:intact])


def _anywhere(window: bytes, of: np.dtype) -> np.ndarray:
    """The window as values that begin at every single byte of it."""
    return np.ndarray((max(len(window) - of.itemsize + 1, 0),), of, window, strides=(1,))


def _ahead_ms(header: np.void) -> int:
    return int(header["ahead_high"]) << 32 | int(header["ahead_low"])
