"""Idempotency keys: a repeated request inside the window gets the result of the first one.

    find (is the key known?)  ─▶  the records get their seqs  ─▶  remember  ─▶  committed, or taken back

A key is remembered together with the seqs of its records. Up to the head of the topic they are committed.
Above it they are on their way, and a repeated request waits for their result. The log keeps a salted digest
of each key, and the seqs.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from topics.core import MAX_IDEMPOTENCY_KEY_BYTES, ApiError, TopicConfig, invalid
from topics.log.seal.snapshot_state import Part
from topics.storage import DIGEST_BYTES, Keys, encode_keys

# Expired keys are dropped so many chunks at a time when others come, so that no append pays for all of them.
_CHUNKS_AT_ONCE = 4
# Integers of up to 60 bits take 32 bytes. Two of half a million keys share a slot once in ten million times;
# the older one is then forgotten.
_SLOTS = (1 << 60) - 1
# Enough keys to share the overhead of a chunk, few enough to be searched.
CHUNK_KEYS = 512
_FULL_BYTES = CHUNK_KEYS * DIGEST_BYTES
# More than a request has records.
_RECORDS = 1 << 24
_FIRST, _TIME, _INDEX, _WIDTH = 0, 1, 2, 3


def check_key(key: bytes) -> None:
    """Raise if an idempotency key is too long."""
    if len(key) > MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"idempotency_key must be at most {MAX_IDEMPOTENCY_KEY_BYTES} bytes")


def keys_kept_ms(topic: "Keyed", now_ms: int) -> int:
    """How long the topic remembers keys now: its window, unless there were too many keys."""
    window_ms = topic.config.idempotency_window_ms
    keys = topic.keys
    if keys is None or not keys.forgotten_ms:
        return window_ms
    return min(window_ms, max(now_ms - keys.forgotten_ms, 0))


def _slots(digests: bytes) -> list[int]:
    """Some bits of each digest, by which keys are found; they distinguish it from nearly all others."""
    starts = range(0, len(digests), DIGEST_BYTES)
    return [int.from_bytes(digests[start : start + 8], "little") & _SLOTS for start in starts]


class KeyChunk:
    """Some hundred keys in few bytes, the oldest first.

    Digests lie one after the other. Keys that were written together share a row:

        first seq i64 | time i64 | index of its first key × 2^24 + records i64

    If `records` is 0, each key of the row stands for one record, from the first seq on. Otherwise the row has
    one key, which stands for so many records. A row ends where the next one begins.
    """

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

    def add(self, digest: bytes, first_seq: int, ts: int, count: int) -> None:
        """Add the newest key, which stands for `count` records."""
        at = len(self.digests) // DIGEST_BYTES
        rows = self.rows
        # A key for one record belongs to the last row if that has its time and seqs up to this one.
        begin, records = divmod(rows[_INDEX - _WIDTH], _RECORDS) if rows else (0, 1)
        is_next = (
            not records and rows[_TIME - _WIDTH] == ts and rows[_FIRST - _WIDTH] + at - begin == first_seq
        )
        if count != 1 or not is_next:
            rows.extend((first_seq, ts, at * _RECORDS + (count if count > 1 else 0)))
        self.digests += digest
        if len(self.digests) >= _FULL_BYTES:
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


class Keyed(Protocol):
    """A topic, as far as its keys know it."""

    config: TopicConfig
    head: int
    assigned: int
    keys: "TopicKeys | None"


class KeysOfAll(Protocol):
    """The keys of all topics, as far as those of one topic know them."""

    salt: bytes
    # To be copied for each key.
    hasher: blake2b

    def add(self, count: int) -> None:
        """Count keys that a topic has got; fewer, if `count` is negative."""

    def forget_early(self, count: int) -> None:
        """Count keys that a bound has taken before their window was over."""

    def note_new(self, keys: "TopicKeys", count: int, now_ms: int) -> None:
        """Count new keys of a topic. Drop its oldest keys if it has too many, and those of all topics."""


class TopicKeys:
    """The keys of one topic that are remembered, the oldest first."""

    __slots__ = (
        "by_slot",
        "chunks",
        "count",
        "forgotten_ms",
        "of_all",
        "over_before_ms",
        "topic",
        "waiters",
    )

    def __init__(self, topic: Keyed, of_all: KeysOfAll) -> None:
        self.topic = topic
        self.of_all = of_all
        self.by_slot: dict[int, KeyChunk] = {}
        self.chunks: list[KeyChunk] = []
        self.count = 0
        # Keys from before this time are over, even where the window reaches further back by now.
        self.over_before_ms = 0
        # When the last key was written that had to go before its window was over; 0 if there was none.
        self.forgotten_ms = 0
        # Repeated requests whose first request is not committed yet, by its first seq: how each one is
        # answered, and how it fails.
        self.waiters: dict[int, list[tuple[Callable[[], None], Callable[[ApiError], None]]]] = {}

    def since(self, now_ms: int) -> int:
        """Keys of this time and later count."""
        return max(now_ms - self.topic.config.idempotency_window_ms, self.over_before_ms)

    def close_window(self, now_ms: int) -> None:
        """Before and after the window is changed: what it has left behind does not come back."""
        if self.topic.config.idempotency_window_ms:
            self.over_before_ms = self.since(now_ms)
        else:
            self.clear()

    # --- requests ---------------------------------------------------------------------------------------

    def digest(self, key: bytes) -> bytes | None:
        """Return the digest of a key; None if the topic remembers no keys. Raise if the key is too long."""
        if len(key) > MAX_IDEMPOTENCY_KEY_BYTES:
            check_key(key)
        if not self.topic.config.idempotency_window_ms:
            return None
        hasher = self.of_all.hasher.copy()
        hasher.update(key)
        return hasher.digest()

    def find(self, digest: bytes, now_ms: int) -> tuple[int, int] | None:
        """First seq and number of the records that a known key stands for; None if the key is new."""
        known = self.by_slot.get(int.from_bytes(digest[:8], "little") & _SLOTS)
        at = -1 if known is None else known.find(digest)
        if known is None or at < 0 or known.time(at) < self.since(now_ms):
            return None
        return known.answer(at)

    def remember(self, taken: dict[bytes, tuple[int, int]], ts: int) -> None:
        """Remember keys by their digest, with first seq and number of the records of each."""
        is_kept = self.topic.config.durability != "ephemeral"
        for digest, (first_seq, count) in taken.items():
            self._add(digest, first_seq, count, ts, is_kept=is_kept)
        self.count += len(taken)
        self.of_all.note_new(self, len(taken), ts)

    def encoded(self, taken: dict[bytes, tuple[int, int]], first_seq: int) -> bytes:
        """The keys as the frame has them whose records begin with `first_seq`."""
        offsets, counts = array("I"), array("I")
        for first, count in taken.values():
            offsets.append(first - first_seq)
            counts.append(count)
        return encode_keys(self.of_all.salt, offsets, counts, b"".join(taken))

    def _add(self, digest: bytes, first_seq: int, count: int, ts: int, *, is_kept: bool) -> None:
        slot = int.from_bytes(digest[:8], "little") & _SLOTS
        known = self.by_slot.get(slot)
        if known is not None:
            known.is_closed = True  # the key had expired and comes again: no chunk has a key twice
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or chunk.is_closed or chunk.is_kept is not is_kept:
            chunk = KeyChunk(is_kept=is_kept)
            self.chunks.append(chunk)
        self.by_slot[slot] = chunk
        chunk.add(digest, first_seq, ts, count)

    def _unlink(self, digests: bytes, chunk: KeyChunk) -> None:
        by_slot = self.by_slot
        for slot in _slots(digests):
            if by_slot.get(slot) is chunk:
                del by_slot[slot]

    # --- repeated requests ------------------------------------------------------------------------------

    def answer(self, first_seq: int, answer: Callable[[], None], fail: Callable[[ApiError], None]) -> None:
        """Answer a repeated request when the first one is committed, whose records begin at `first_seq`.

        `fail` is called instead if it is refused.
        """
        if first_seq > self.topic.head:
            self.waiters.setdefault(first_seq, []).append((answer, fail))
        else:
            answer()

    def answer_waiters(self) -> None:
        for first_seq in [seq for seq in self.waiters if seq <= self.topic.head]:
            for answer, _ in self.waiters.pop(first_seq):
                answer()

    def fail(self, error: ApiError) -> None:
        """Fail the requests that repeat one whose seqs were taken back."""
        for first_seq in [seq for seq in self.waiters if seq > self.topic.assigned]:
            for _, fail in self.waiters.pop(first_seq):
                fail(error)

    # --- letting go -------------------------------------------------------------------------------------

    @property
    def oldest_ms(self) -> int:
        """Only to be asked where there are keys."""
        return self.chunks[0].time(self.chunks[0].gone)

    @property
    def is_idle(self) -> bool:
        return not self.count and not self.waiters

    def has_over(self, now_ms: int) -> bool:
        return bool(self.chunks) and self.chunks[0].index_at(self.since(now_ms)) > self.chunks[0].gone

    def expire(self, now_ms: int) -> None:
        """Let go of keys that are over; not of all of them, if there are very many."""
        since = self.since(now_ms)
        for chunk in self.chunks[:_CHUNKS_AT_ONCE]:
            self._let_go(chunk, chunk.index_at(since))

    def forget(self, count: int, now_ms: int) -> None:
        """There are too many: the oldest ones go."""
        since = self.since(now_ms)
        while count > 0 and self.chunks:
            chunk = self.chunks[0]
            upto = min(chunk.gone + count, len(chunk))
            count -= upto - chunk.gone
            early = upto - max(chunk.index_at(since), chunk.gone)
            if early > 0:
                self.forgotten_ms = chunk.time(upto - 1)
                self.of_all.forget_early(early)
            self._let_go(chunk, upto)

    def set_back(self, shown_ms: int, now_ms: int) -> None:
        """The clock was set back: what was over stays over, and later keys count as written now."""
        since = self.since(shown_ms)
        for chunk in list(self.chunks):
            self._let_go(chunk, chunk.index_at(since))
            chunk.set_back(now_ms)
        self.over_before_ms = min(self.over_before_ms, now_ms)
        self.forgotten_ms = min(self.forgotten_ms, now_ms)

    def _let_go(self, chunk: KeyChunk, upto: int) -> None:
        """The oldest of all, up to this index in the first chunk."""
        gone = upto - chunk.gone
        if gone <= 0:
            return
        self._unlink(chunk.digests_between(chunk.gone, upto), chunk)
        chunk.gone = upto
        self.count -= gone
        self.of_all.add(-gone)
        if upto == len(chunk):
            self.chunks.remove(chunk)
            if not self.chunks:
                self.by_slot = {}  # it does not shrink by itself

    def clear(self) -> None:
        self.of_all.add(-self.count)
        self.by_slot, self.chunks, self.count = {}, [], 0

    def take_back(self, head: int) -> None:
        """Forget what belongs to records above `head`."""
        while self.chunks:
            chunk = self.chunks[-1]
            size, before = chunk.length_at(head), len(chunk)
            self._unlink(chunk.digests_between(size, before), chunk)
            chunk.cut(size)
            self.count -= before - size
            self.of_all.add(size - before)
            if size > chunk.gone:
                return
            self.chunks.pop()

    # --- over a restart ---------------------------------------------------------------------------------

    def replay(self, keys: Keys, first_seq: int, ts: int) -> None:
        """Remember the keys of a frame that was read back."""
        for at, (offset, count) in enumerate(zip(keys.offsets, keys.counts, strict=True)):
            digest = keys.digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES]
            self._add(digest, first_seq + offset, count, ts, is_kept=True)
        self.count += len(keys.counts)
        self.of_all.note_new(self, len(keys.counts), ts)

    def dump(self) -> list[tuple[int, Part, Part]]:
        """The chunks that a restart keeps, as far as their records are committed."""
        return [chunk.dump(self.topic.head) for chunk in self.chunks if chunk.is_kept]

    def load(self, chunks: list[tuple[int, bytes, bytes]], over_before_ms: int, forgotten_ms: int) -> None:
        self.over_before_ms, self.forgotten_ms = over_before_ms, forgotten_ms
        for gone, digests, rows in chunks:
            chunk = KeyChunk(is_kept=True, digests=digests, rows=rows, gone=gone)
            slots = _slots(chunk.digests_between(gone, len(chunk)))
            for slot in slots:
                self.by_slot[slot] = chunk
            self.chunks.append(chunk)
            self.count += len(slots)
            self.of_all.add(len(slots))
