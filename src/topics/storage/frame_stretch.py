"""Small Append frames read together: one behind the other, of one topic, with nothing in them but data.

Single writes make a frame each. Read one by one, most of the time would go into the steps around a checksum.
Here the steps are taken for a thousand frames at a time; what is checked is the same.
"""

from struct import Struct

import numpy as np
from xxhash import xxh3_64_digest

from topics.storage.frame import FRAME_MAGIC_BYTES, HEADER_BYTES, Frame, Kind
from topics.values import accelerator

# Frames of more records are large enough by themselves.
SMALL_RECORDS = 16
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
# Before the payload's rows, two lengths: of the rows, and of tags that are not there.
_ROWS_AT = HEADER_BYTES + 8
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
_MAGIC_BYTES = len(FRAME_MAGIC_BYTES)
# For the checksums of headers: which words are mixed, and with which words of XXH3's secret.
_LEFT, _RIGHT = [0, 2, 3, 5], [1, 3, 4, 6]
_SECRET_LEFT = np.array(
    [[0xBE4BA423396CFEB8], [0x78E5C0CC4EE679CB], [0x8E2443F7744608B8], [0xDB979083E96DD4DE]], np.uint64
)
_SECRET_RIGHT = np.array(
    [[0x1CAD21F72C81017C], [0x2172FFCC7DD05A82], [0x4C263A81E69035E0], [0x1F67B3B7A4A44072]], np.uint64
)
_BEGIN = np.uint64(56 * 0x9E3779B185EBCA87 & 0xFFFFFFFFFFFFFFFF)
_PRIME = np.uint64(0x165667919E3779F9)
_MASK, _HALF, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(37)


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
        window, native = self._window, accelerator.native
        if native is not None:
            return native.frame_parts(window, self._starts)  # type: ignore[no-any-return]
        counts = self._headers["count"].astype(np.int64)
        row_ends = self._starts[1:] - 4 * counts
        bounds = zip((self._starts[:-1] + _ROWS_AT).tolist(), row_ends.tolist(), strict=True)
        rows = b"".join([window[begin:end] for begin, end in bounds])
        # Every record's place in the lengths that follow the rows of its frame.
        first_of_frame = np.repeat(np.cumsum(counts) - counts, counts)
        lengths_at = np.repeat(row_ends, counts) + 4 * (np.arange(len(first_of_frame)) - first_of_frame)
        return rows, _anywhere(window, np.dtype("<u4"))[lengths_at].tobytes()

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
    if accelerator.native is not None:
        return _frames_found(window, behind)
    # Where a client has written these bytes, one piece becomes two that are both too short.
    pieces = window.split(FRAME_MAGIC_BYTES)[1:]
    starts = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)) + _MAGIC_BYTES, out=starts[1:])
    if starts[-1] != len(window):
        return None  # it does not begin with a frame
    begins = starts[:-1][starts[:-1] + HEADER_BYTES <= len(window)]
    headers = _anywhere(window, _HEADER)[begins]
    payload_at = HEADER_BYTES - _MAGIC_BYTES
    payloads = b"".join([xxh3_64_digest(piece[payload_at:]) for piece in pieces[: len(begins)]])
    counts = headers["count"].astype(np.uint64)
    seqs = np.uint64(behind.last_seq + 1) + np.cumsum(counts) - counts
    is_intact = (
        (headers["checksum"] == header_checksums(headers.view(np.uint64).reshape(-1, 8)[:, 1:]))
        & (headers["payload_checksum"] == np.frombuffer(payloads, ">u8"))
        & (headers["kind"] == int(Kind.APPEND))
        & (headers["flags"] == 0)
        & (headers["topic_id"] == behind.topic_id)
        & (headers["first_seq"] == seqs)
        & (counts <= SMALL_RECORDS)
        # No frame knows of a sync beyond itself.
        & (headers["synced"] <= (begins + behind.end).astype(np.uint64))
    )
    intact = len(begins) if is_intact.all() else int(np.argmin(is_intact))
    if intact < MIN_FRAMES:
        return None
    return FrameStretch(window, behind.end, starts[: intact + 1], headers[:intact])


def _frames_found(window: bytes, behind: Frame | FrameStretch) -> FrameStretch | None:
    """The same, where the accelerator has looked at the headers."""
    starts = np.frombuffer(
        accelerator.native.frames(window, behind.topic_id, behind.last_seq + 1, behind.end), np.int64
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


def header_checksums(words: np.ndarray) -> np.ndarray:
    """The lower halves of XXH3, of 56 bytes each. `words`: a row of seven for every header.

    A call per header would cost more than what it computes. XXH3 takes an input of this length as four pairs
    of words, mixes each with its secret, and adds them up; columns do that for all headers together.
    """
    columns = words.T
    mixed = _folded_product(columns[_LEFT] ^ _SECRET_LEFT, columns[_RIGHT] ^ _SECRET_RIGHT)
    total: np.ndarray = mixed.sum(axis=0, dtype=np.uint64) + _BEGIN
    total ^= total >> _SHIFT
    total *= _PRIME
    total ^= total >> _HALF
    total &= _MASK
    return total


def _folded_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Both halves of each product of 128 bits, one laid over the other."""
    left_low, left_high = left & _MASK, left >> _HALF
    right_low, right_high = right & _MASK, right >> _HALF
    low_high = left_low * right_high
    middle = (left_low * right_low >> _HALF) + (low_high & _MASK) + left_high * right_low
    high: np.ndarray = (middle >> _HALF) + (low_high >> _HALF) + left_high * right_high
    high ^= left * right
    return high
