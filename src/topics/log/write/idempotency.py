"""Memory of keyed writes: a retry inside the window gets the first answer instead of a second append.

    take (the key belongs to a write from now on) ─▶ remember (together with the seqs that the write got)
                  └─ withdraw (it is refused)              └─ fail (it cannot be committed)

What is remembered up to the topic's head is committed; what lies above it is on its way, and retries wait for
it. Of a key nothing is kept but a salted digest, and of its answer the seqs.
"""

from typing import TYPE_CHECKING, Protocol

from topics.log.seal.snapshot_state import Part
from topics.log.topic import Topic
from topics.log.write.key_chunk import KeyChunk
from topics.storage import DIGEST_BYTES, Keys
from topics.values import MAX_IDEMPOTENCY_KEY_BYTES, ApiError, accelerator, invalid

if TYPE_CHECKING:
    from topics.log.write.all_keys import AllKeys

# Keys that are over are let go when others come, so many chunks at a time: no write pays for all of them.
_CHUNKS_AT_ONCE = 4
# Numbers up to here take 32 bytes. Once in ten million times, two of half a million keys agree in theirs; the
# older one is then forgotten.
_PLACES = (1 << 60) - 1


def checked_key(named: str | None, header: bytes | None) -> bytes:
    """The key of a write that has one: the one that it names itself, else that of its header."""
    key = named.encode() if named is not None else (header or b"").strip(b" \t")
    if len(key) > MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"idempotency_key must be at most {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
    return key


def keys_kept_ms(topic: Topic, now_ms: int) -> int:
    """How long the topic remembers keys at present: their window, unless there have been too many of them."""
    window_ms = topic.config.idempotency_window_ms
    keys = topic.keys
    if keys is None or not keys.forgotten_ms:
        return window_ms
    return min(window_ms, max(now_ms - keys.forgotten_ms, 0))


def place_of(digest: bytes) -> int:
    """A digest is as good as chance: some of its bits tell it from nearly all others."""
    return int.from_bytes(digest[:8], "little") & _PLACES


def _no_places() -> "dict[int, KeyChunk]":
    """Who remembers which place: a dictionary, or what does the same in less than half of the memory."""
    native = accelerator.native
    return {} if native is None else native.Places()


def _places(digests: bytes) -> list[int]:
    starts = range(0, len(digests), DIGEST_BYTES)
    return [place_of(digests[start : start + DIGEST_BYTES]) for start in starts]


class Retry(Protocol):
    """A write that may turn out to be the repetition of another."""

    count: int

    def answer_as(self, first_seq: int, count: int) -> None:
        """It is one: these are the seqs that the first one got."""

    def fail(self, error: ApiError) -> None: ...


class MaybeRetry(Exception):
    """One of several writes that were to go together may be the repetition of another."""


class KeyedWrite:
    """The keys of one write: one for all its records, or one for each."""

    __slots__ = ("_chunk", "_digests", "_keys", "_records")

    def __init__(self, keys: "TopicKeys", chunk: KeyChunk, digests: bytes, records: int) -> None:
        """`records`: for how many the only key stands; 0 if each stands for one."""
        self._keys = keys
        self._chunk = chunk
        self._digests = digests
        self._records = records

    def encoded(self) -> bytes:
        """For the frame that gets the records."""
        digests = self._digests
        return self._keys.all.frame_head(len(digests) // DIGEST_BYTES, self._records) + digests

    def remember(self, first_seq: int, ts: int) -> None:
        """The records have their seqs."""
        digests = self._digests
        self._chunk.add(digests, first_seq, ts, self._records)
        self._keys.added(len(digests) // DIGEST_BYTES, ts)

    def settle(self) -> None:
        """The write is committed."""
        if self._keys.waiters:
            self._keys.answer_waiters()

    def withdraw(self) -> None:
        """The write is refused: the next one with the same key is the first."""
        self._keys.withdraw(self._digests, self._chunk)

    def fail(self, error: ApiError) -> None:
        """The write cannot be committed."""
        self._keys.fail(error)


class TopicKeys:
    """The keys of one topic that are remembered, the oldest first."""

    __slots__ = (
        "all",
        "by_place",
        "chunks",
        "count",
        "forgotten_ms",
        "over_before_ms",
        "topic",
        "waiters",
    )

    def __init__(self, topic: Topic, all_keys: "AllKeys") -> None:
        self.topic = topic
        self.all = all_keys
        self.by_place: dict[int, KeyChunk] = _no_places()
        self.chunks: list[KeyChunk] = []
        self.count = 0
        # Keys from before this time are over, even where the window reaches further back by now.
        self.over_before_ms = 0
        # When the last key was written that had to go before its window was over; 0 if there was none.
        self.forgotten_ms = 0
        # Retries of writes that are on their way: how many records those have, by their first seq.
        self.waiters: dict[int, list[tuple[int, Retry]]] = {}

    def since(self, now_ms: int) -> int:
        """Keys of this time and later count."""
        return max(now_ms - self.topic.config.idempotency_window_ms, self.over_before_ms)

    def close_window(self, now_ms: int) -> None:
        """Before and after the window is changed: what it has left behind does not come back."""
        if self.topic.config.idempotency_window_ms:
            self.over_before_ms = self.since(now_ms)
        else:
            self.clear()

    # --- writes -----------------------------------------------------------------------------------------

    def take(self, key: bytes, op: Retry, now_ms: int) -> KeyedWrite | None:
        """Take the key for a write; None if it is a retry, which is answered now or when the first one is."""
        digest = self.all.digest(key)
        place = place_of(digest)
        known = self.by_place.get(place)
        at = -1 if known is None else known.find(digest)
        if known is not None and at >= 0:
            if known.time(at) >= self.since(now_ms):
                self._answer(op, *known.answer(at))
                return None
            # It is over and comes again; no chunk has a key twice.
            known.is_closed = True
        chunk = self.by_place[place] = self._open_chunk(self.topic.config.durability != "ephemeral")
        return KeyedWrite(self, chunk, digest, op.count if op.count > 1 else 0)

    def take_each(self, keys: list[bytes]) -> KeyedWrite:
        """The same for records that are written together, each with a key of its own.

        Raises `MaybeRetry`, with no key taken, when one of them should be looked at by itself.
        """
        by_place = self.by_place
        chunk = self._open_chunk(self.topic.config.durability != "ephemeral")
        digests: list[bytes] = []
        for key in keys:
            digest = self.all.digest(key)
            place = place_of(digest)
            if place in by_place:
                # With the chunk, if it was opened for them: none stays empty where others come behind it.
                self.withdraw(b"".join(digests), chunk)
                raise MaybeRetry
            by_place[place] = chunk
            digests.append(digest)
        return KeyedWrite(self, chunk, b"".join(digests), 0)

    def _open_chunk(self, is_kept: bool) -> KeyChunk:
        """The one that takes the next keys."""
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or chunk.is_closed or chunk.is_kept is not is_kept:
            chunk = KeyChunk(is_kept=is_kept)
            self.chunks.append(chunk)
        return chunk

    def added(self, count: int, ts: int) -> None:
        all_keys = self.all
        self.count += count
        all_keys.count += count
        if self.count > all_keys.most_a_topic or all_keys.count > all_keys.most:
            all_keys.enforce_bounds(self, ts)

    def withdraw(self, digests: bytes, chunk: KeyChunk) -> None:
        self.take_back(self.topic.assigned)
        self._unlink(digests, chunk)

    def _unlink(self, digests: bytes, chunk: KeyChunk) -> None:
        by_place = self.by_place
        for place in _places(digests):
            if by_place.get(place) is chunk:
                del by_place[place]

    # --- retries ----------------------------------------------------------------------------------------

    def _answer(self, op: Retry, first_seq: int, count: int) -> None:
        if first_seq > self.topic.head:
            self.waiters.setdefault(first_seq, []).append((count, op))
        else:
            op.answer_as(first_seq, count)

    def answer_waiters(self) -> None:
        for first_seq in [seq for seq in self.waiters if seq <= self.topic.head]:
            for count, retry in self.waiters.pop(first_seq):
                retry.answer_as(first_seq, count)

    def fail(self, error: ApiError) -> None:
        """Writes above the last seq that is given out now were taken back, and their keys with them."""
        for first_seq in [seq for seq in self.waiters if seq > self.topic.assigned]:
            for _, retry in self.waiters.pop(first_seq):
                retry.fail(error)

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
                self.all.forgotten += early
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
        self.all.count -= gone
        if upto == len(chunk):
            self.chunks.remove(chunk)
            if not self.chunks:
                self.by_place = _no_places()  # it does not shrink by itself

    def clear(self) -> None:
        self.all.count -= self.count
        self.by_place, self.chunks, self.count = _no_places(), [], 0

    def take_back(self, head: int) -> None:
        """Forget what belongs to records above `head`."""
        while self.chunks:
            chunk = self.chunks[-1]
            size, before = chunk.length_at(head), len(chunk)
            self._unlink(chunk.digests_between(size, before), chunk)
            chunk.cut(size)
            self.count -= before - size
            self.all.count -= before - size
            if size > chunk.gone:
                return
            self.chunks.pop()

    # --- over a restart ---------------------------------------------------------------------------------

    def replay(self, keys: Keys, first_seq: int, ts: int) -> None:
        """The keys of a frame that was read back."""
        for at, place in enumerate(_places(keys.digests)):
            known = self.by_place.get(place)
            if known is not None:
                known.is_closed = True  # it was over then
            chunk = self.by_place[place] = self._open_chunk(is_kept=True)
            digest = keys.digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES]
            first, records = first_seq + keys.offsets[at], keys.counts[at]
            chunk.add(digest, first, ts, records if records > 1 else 0)
        self.added(len(keys.counts), ts)

    def dump(self) -> list[tuple[int, Part, Part]]:
        """The chunks that a restart keeps, as far as their records are committed."""
        return [chunk.dump(self.topic.head) for chunk in self.chunks if chunk.is_kept]

    def load(self, chunks: list[tuple[int, bytes, bytes]]) -> None:
        for gone, digests, rows in chunks:
            chunk = KeyChunk(is_kept=True, digests=digests, rows=rows, gone=gone)
            places = _places(chunk.digests_between(gone, len(chunk)))
            for place in places:
                self.by_place[place] = chunk
            self.chunks.append(chunk)
            self.count += len(places)
            self.all.count += len(places)
