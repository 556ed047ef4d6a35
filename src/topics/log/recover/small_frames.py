"""Small Append frames taken together: one behind the other in the journal, of one topic, nothing between.

Single writes make a frame each. Applied one by one, recovery would spend its time on the steps around a
record; a few hundred of them at once cost little more than one.
"""

from array import array
from collections.abc import Iterable, Iterator

from topics.log.write.batch import StoredBatch, plain_parts
from topics.storage import Damage, Frame, Kind

# Frames of more records are large enough by themselves.
SMALL_RECORDS = 16
MAX_FRAMES = 512


class JoinedFrames:
    """Frames of consecutive seqs; plain ones, in which nothing but data was written."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        first, last = frames[0], frames[-1]
        self.position, self.topic_id, self.first_seq = first.position, first.topic_id, first.first_seq
        self.last_seq = last.last_seq

    def decode(self) -> tuple[StoredBatch, bytes]:
        rows: list[memoryview] = []
        lengths: list[memoryview] = []
        for frame in self.frames:
            part, part_lengths = plain_parts(frame.payload, frame.count)
            rows.append(part)
            lengths.append(part_lengths)
        data_lens = array("I", b"".join(lengths))
        return StoredBatch(len(data_lens), data_lens, None, None, None), b"".join(rows)

    def times(self) -> list[tuple[int, int]]:
        """From which record on which time holds: pairs of index and time, the first for index 0."""
        times: list[tuple[int, int]] = []
        at = 0
        for frame in self.frames:
            if not times or times[-1][1] != frame.ts:
                times.append((at, frame.ts))
            at += frame.count
        return times


def join_small(items: Iterable[Frame | Damage], border: int) -> Iterator[Frame | Damage | JoinedFrames]:
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
