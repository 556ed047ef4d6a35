"""Records that a segment had before the journal heard of them: what the journal says of each run."""

from dataclasses import dataclass

import msgspec

from topics.log.run import Run
from topics.storage import Frame

_pair = msgspec.msgpack.Decoder(tuple[int, int])


@dataclass(slots=True, frozen=True)
class Adopted:
    """A run in a segment, all of whose records have the same time. `size`: of their data and meta."""

    base: int
    count: int
    size: int
    ts: int
    segment: int

    def payload(self) -> bytes:
        """Of its frame; the header has the rest."""
        return msgspec.msgpack.encode((self.segment, self.size))

    def run(self, topic_id: int) -> Run:
        """As it is when it becomes visible: nothing of it is deleted, and none of it is in memory."""
        return Run(
            topic_id,
            self.base,
            None,
            framed=False,
            count=self.count,
            live_count=self.count,
            live_bytes=self.size,
            first_ts=self.ts,
            last_ts=self.ts,
        )


def decode_adopted(frame: Frame) -> Adopted:
    segment, size = _pair.decode(frame.payload)
    return Adopted(frame.first_seq, frame.count, size, frame.ts, segment)
