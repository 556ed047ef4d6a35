"""A batch so large that it is rendered ahead, beside the loop, for the seqs and time it will probably get.

Where others write to the topic meanwhile, only the numbers in its rows are put right. One that is very large
gets a run of its own: the rows stay where they were rendered, and are never copied while others wait.
"""

from collections.abc import Sequence

import numpy as np

from topics.log.remove.tags import Generation
from topics.log.run import HotColumns
from topics.log.write.append_frame import PAYLOAD_HEAD_BYTES, payload_parts
from topics.log.write.batch import Batch
from topics.storage import rows as row_text
from topics.storage.filesystem import Buffer
from topics.values import MIB

# To copy less than this into an open run takes some milliseconds; files of this size are no burden.
ALONE_BYTES = 8 * MIB
# Tags are put into their index so many at a time: others have their turn in between.
_STEP_TAGS = 4096


class AheadBatch(Batch):
    __slots__ = ("_for", "_rows", "columns", "generation", "prepared", "rendered_ms")

    def __init__(self) -> None:
        """Whatever else a batch is made of has been set."""
        # First seq and time for which it was rendered.
        self._for: tuple[int, int] | None
        self._rows: bytes | memoryview
        self.prepared: tuple[Buffer, int] | None
        self.forget_prepared()

    def prepare(self, first_seq: int, ts: int, now: int | None = None) -> None:
        self.forget_prepared()
        rows = self.render_now(first_seq, ts)
        if now is not None:
            rows = self._get_ready(rows, first_seq, ts)
        self._for, self._rows, self.rendered_ms = (first_seq, ts), rows, now

    def forget_prepared(self) -> None:
        self._for, self._rows = None, b""
        self.prepared = self.rendered_ms = self.columns = self.generation = None

    def render(self, first_seq: int, ts: int) -> bytes | memoryview:
        if self._for == (first_seq, ts):
            return self._rows
        self.forget_prepared()
        return self.render_now(first_seq, ts)

    def render_now(self, first_seq: int, ts: int) -> bytes | memoryview:
        raise NotImplementedError

    def ends_behind(self, offset: int) -> bytes | None:
        return None  # `ends` has them

    def _get_ready(self, rows: bytes | memoryview, first_seq: int, ts: int) -> bytes | memoryview:
        """All that its write will need."""
        if self.prepared is None:
            parts, flags = payload_parts(self, rows)
            payload = joined(parts)
            self.prepared = payload, flags
            rows = payload[PAYLOAD_HEAD_BYTES : PAYLOAD_HEAD_BYTES + len(rows)]
        if self.size >= ALONE_BYTES:
            self.columns = HotColumns(first_seq)
            self.columns.extend(self, rows, ts)
            if self.tags is not None:
                self.generation = _generation_of(self.tags, first_seq)
        return rows

    def restamp(self, first_seq: int, ts: int) -> bool:
        """What was rendered gets other seqs and another time; False if it has to be rendered anew."""
        if self._for is None:
            return False
        rows = np.frombuffer(self._rows, np.uint8)
        if not rows.flags.writeable or not row_text.restamp(
            rows, self.row_ends(self._rows), self._for, (first_seq, ts)
        ):
            return False
        self._for = first_seq, ts
        if self.columns is not None:
            self.columns.restamp(first_seq, ts)
        if self.generation is not None:
            self.generation.move(first_seq)
        return True


def _generation_of(tags: Sequence[str | None], first_seq: int) -> Generation:
    generation = Generation(first_seq)
    for at in range(0, len(tags), _STEP_TAGS):
        generation.extend(tags[at : at + _STEP_TAGS], first_seq + at)
    return generation


def joined(parts: Sequence[Buffer]) -> memoryview:
    """All of them in one; other threads run meanwhile, which they do not while bytes are joined."""
    whole = np.empty(sum(map(len, parts)), np.uint8)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return whole.data
