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
    """The same frames in the same order; none below the position `border` is joined with one above it."""
    held: list[Frame] = []
    append = int(Kind.APPEND)
    for item in items:
        if isinstance(item, Frame) and item.kind == append and not item.flags and item.count <= SMALL_RECORDS:
            if held:
                last = held[-1]
                if (
                    item.topic_id == last.topic_id
                    and item.first_seq == last.first_seq + last.count
                    and len(held) < MAX_FRAMES
                    and (item.position < border) == (last.position < border)
                ):
                    held.append(item)
                    continue
                yield _as_one(held)
            held = [item]
            continue
        if held:
            yield _as_one(held)
            held = []
        yield item
    if held:
        yield _as_one(held)


def _as_one(frames: list[Frame]) -> Frame | JoinedFrames:
    return frames[0] if len(frames) == 1 else JoinedFrames(frames)
