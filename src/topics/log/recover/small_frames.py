"""Small Append frames taken together: one behind the other in the journal, of one topic, nothing between.

Single writes make a frame each. Applied one by one, recovery would spend its time on the steps around a
record; a few hundred of them at once cost little more than one. Many plain ones have been read together
(`FrameStretch`); those that came by themselves, because keys were written with them, are joined here.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from topics.codec import StoredRows, plain_parts
from topics.codec.frames import SMALL_RECORDS
from topics.storage import Damage, Frame, FrameStretch, Kind

MAX_FRAMES = 512


class JoinedFrames:
    """Frames of consecutive seqs; plain ones, in which nothing but data was written."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        first, last = frames[0], frames[-1]
        self.position, self.topic_id, self.first_seq = first.position, first.topic_id, first.first_seq
        self.last_seq, self.clock_ms = last.last_seq, last.clock_ms

    def parts(self) -> tuple[bytes, bytes]:
        """The rows of all of them, and the lengths of their data."""
        parts = [plain_parts(frame.payload, frame.count) for frame in self.frames]
        return b"".join([rows for rows, _ in parts]), b"".join([lengths for _, lengths in parts])

    def times(self) -> list[tuple[int, int]]:
        """From which record on which time holds: pairs of index and time, the first for index 0."""
        times: list[tuple[int, int]] = []
        at = 0
        for frame in self.frames:
            if not times or times[-1][1] != frame.ts:
                times.append((at, frame.ts))
            at += frame.count
        return times


SmallFrames: TypeAlias = JoinedFrames | FrameStretch


def decode_rows(small: SmallFrames) -> StoredRows:
    text, lengths = small.parts()
    return StoredRows(text, lengths, small.first_seq, small.times()[0][1])


def rows_of(frame: Frame) -> StoredRows:
    """The records of an Append frame."""
    return StoredRows.read(frame.payload, frame.count, frame.flags, frame.first_seq, frame.ts)


def join_small(
    items: Iterable[Frame | Damage | FrameStretch], border: int
) -> Iterator[Frame | Damage | SmallFrames]:
    """The same frames in the same order, but for keys, which come behind all frames that are joined.

    None below the position `border` is joined with one above it.
    """
    held: list[Frame] = []
    keys: list[Frame] = []
    append, keyed = int(Kind.APPEND), int(Kind.KEYED)
    for item in items:
        if isinstance(item, Frame):
            if item.kind == append and not item.flags and item.count <= SMALL_RECORDS:
                if held and not _continues(item, held, border):
                    yield from _as_one(held, keys)
                    held, keys = [], []
                held.append(item)
                continue
            if held and item.kind == keyed:
                keys.append(item)
                continue
        if held:
            yield from _as_one(held, keys)
            held, keys = [], []
        yield item
    if held:
        yield from _as_one(held, keys)


def _continues(frame: Frame, held: list[Frame], border: int) -> bool:
    last = held[-1]
    return (
        frame.topic_id == last.topic_id
        and frame.first_seq == last.first_seq + last.count
        and len(held) < MAX_FRAMES
        and (frame.position < border) == (last.position < border)
    )


def _as_one(frames: list[Frame], keys: list[Frame]) -> Iterator[Frame | JoinedFrames]:
    yield frames[0] if len(frames) == 1 else JoinedFrames(frames)
    yield from keys
