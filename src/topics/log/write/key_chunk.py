"""Some hundred idempotency keys in as few bytes as they need, the oldest first.

Their digests lie one behind the other. Keys that were written together share a row:

    first seq i64 | time i64 | index of its first key × 2^24 + records i64

Each of its keys stands for one record, from the first seq on, if `records` is 0; else its only key stands for
so many. A row ends where the next one begins.
"""

from array import array
from bisect import bisect_left

from topics.log.seal.snapshot_state import Part
from topics.storage import DIGEST_BYTES

# Enough to share what a chunk takes, few enough to be searched.
CHUNK_KEYS = 512
_FULL_BYTES = CHUNK_KEYS * DIGEST_BYTES
# More than a write has records.
_RECORDS = 1 << 24
_FIRST, _TIME, _INDEX, _WIDTH = 0, 1, 2, 3


class KeyChunk:
    __slots__ = ("digests", "gone", "is_closed", "is_kept", "rows")

    def __init__(self, *, is_kept: bool, digests: bytes = b"", rows: bytes = b"", gone: int = 0) -> None:
        self.digests = bytearray(digests)
        self.rows = array("q", rows)
        # So many, the oldest, were let go.
        self.gone = gone
        # Whether a restart keeps them: those of class ephemeral go, as their records do.
        self.is_kept = is_kept
        # It takes no more: it is full, or has a key that is over and may come again.
        self.is_closed = bool(digests)

    def __len__(self) -> int:
        """How many there were."""
        return len(self.digests) // DIGEST_BYTES

    def add(self, digests: bytes, first_seq: int, ts: int, records: int) -> None:
        before = len(self.digests)
        self.rows.extend((first_seq, ts, before // DIGEST_BYTES * _RECORDS + records))
        self.digests += digests
        if before >= _FULL_BYTES:
            self.is_closed = True

    # --- finding ----------------------------------------------------------------------------------------

    def find(self, digest: bytes) -> int:
        """The index of a key, or -1."""
        at = self.digests.find(digest, self.gone * DIGEST_BYTES)
        while at > 0 and at % DIGEST_BYTES:
            at = self.digests.find(digest, at + 1)
        return at // DIGEST_BYTES

    def answer(self, index: int) -> tuple[int, int]:
        """First seq and number of the records that were written with it."""
        at = self._row_of(index)
        begin, records = divmod(self.rows[at + _INDEX], _RECORDS)
        first_seq = self.rows[at + _FIRST]
        return (first_seq, records) if records else (first_seq + index - begin, 1)

    def time(self, index: int) -> int:
        return self.rows[self._row_of(index) + _TIME]

    def index_at(self, ms: int) -> int:
        """Keys from this index on were written then or later."""
        rows = self.rows
        row = bisect_left(range(len(rows) // _WIDTH), ms, key=lambda row: rows[row * _WIDTH + _TIME])
        return rows[row * _WIDTH + _INDEX] // _RECORDS if row < len(rows) // _WIDTH else len(self)

    def _row_of(self, index: int) -> int:
        rows = self.rows
        key = (index + 1) * _RECORDS
        row = bisect_left(range(len(rows) // _WIDTH), key, key=lambda row: rows[row * _WIDTH + _INDEX])
        return (row - 1) * _WIDTH

    def digests_between(self, start: int, stop: int) -> bytes:
        return bytes(self.digests[start * DIGEST_BYTES : stop * DIGEST_BYTES])

    # --- taking back ------------------------------------------------------------------------------------

    def length_at(self, head: int) -> int:
        """How many belong to records up to this seq."""
        size = len(self)
        while size > self.gone:
            first_seq, count = self.answer(size - 1)
            if first_seq + count - 1 <= head:
                break
            size -= 1
        return size

    def cut(self, size: int) -> None:
        """Keep so many. A snapshot that is being written may hold on to what there was."""
        self.digests = self.digests[: size * DIGEST_BYTES]
        stop = len(self.rows)
        while stop and self.rows[stop - 1] // _RECORDS >= size:
            stop -= _WIDTH
        self.rows = self.rows[:stop]

    def set_back(self, now_ms: int) -> None:
        """No key is later than this. A snapshot that is being written may hold on to what there was."""
        if self.rows and self.rows[_TIME - _WIDTH] > now_ms:
            self.rows = self.rows[:]
            for at in range(_TIME, len(self.rows), _WIDTH):
                self.rows[at] = min(self.rows[at], now_ms)

    # --- in snapshots -----------------------------------------------------------------------------------

    def dump(self, head: int) -> tuple[int, Part, Part]:
        """How many are gone, the digests, and the rows; without what belongs to records above this seq."""
        # What was written together is committed together.
        if self.is_closed and self.rows[-_WIDTH] <= head:
            return self.gone, self.digests, memoryview(self.rows).cast("B")
        copy = KeyChunk(is_kept=True, digests=bytes(self.digests), rows=self.rows.tobytes())
        copy.cut(self.length_at(head))
        return self.gone, copy.digests, copy.rows.tobytes()
