"""Changes of what lies on disk, and how it is written and read, that make no difference."""

from __future__ import annotations

from tests.mutation.alike_change import Alike

ONE_BY_ONE = "frames that are not taken together have the same effect, one by one"
_SAME_ROWS = "formatted one by one, rows are the same"
_NOTHING_LEFT = "of a file that ends there no frame is read"
_BEHIND = "a footer and a trailer follow, so that nothing intact ends there"

STORAGE: tuple[Alike, ...] = (
    Alike(
        "storage/arrow_columns.py",
        "np.where(lengths > 0,",
        "np.where(lengths >= 0,",
        "what is cut where there is no meta is not taken",
    ),
    Alike(
        "storage/columns.py",
        "    if len(parts) == 1:\n",
        "    if False:\n",
        "one part is put together with nothing",
    ),
    Alike(
        "storage/columns.py",
        "if least == around_data(base + len(ts) - 1, int(ts[-1])):",
        "if False:",
        "the other way counts digits, and finds that there are as many everywhere",
    ),
    Alike(
        "storage/filesystem.py", "if len(buffers) == 1:", "if False:", "both ways write one buffer the same"
    ),
    Alike("storage/filesystem.py", "while size > 0:", "while size >= 0:", "a read of nothing ends it"),
    Alike(
        "storage/filesystem.py",
        "if os.fstat(fd).st_size < size:",
        "if os.fstat(fd).st_size <= size:",
        "room is taken that is taken already",
    ),
    Alike(
        "storage/frame_stretch.py",
        "        if native is not None:\n",
        "        if False:\n",
        "without the accelerator the same is done",
    ),
    Alike("storage/frame_stretch.py", "if at < self._alone_until:", "if False:", ONE_BY_ONE),
    Alike(
        "storage/frame_stretch.py", "if at < self._alone_until:", "if at <= self._alone_until:", ONE_BY_ONE
    ),
    Alike(
        "storage/frame_stretch.py",
        "if at + HEADER_BYTES > stop:",
        "if at + HEADER_BYTES >= stop:",
        ONE_BY_ONE,
    ),
    Alike(
        "storage/frame_stretch.py",
        "if found_topic != topic_id or kind != Kind.APPEND or flags or count > SMALL_RECORDS:",
        "if False:",
        "frames that are read together are checked for the same",
    ),
    Alike(
        "storage/frame_stretch.py",
        "if starts[-1] != len(window):",
        "if False:",
        "what is taken for headers then has no checksum that is right",
    ),
    Alike(
        "storage/frame_stretch.py",
        "+ HEADER_BYTES <= len(window)]",
        "+ HEADER_BYTES < len(window)]",
        ONE_BY_ONE,
    ),
    Alike(
        "storage/frame_stretch.py",
        '(headers["synced"] <= (begins',
        '(headers["synced"] < (begins',
        ONE_BY_ONE,
    ),
    Alike(
        "storage/journal.py",
        "if size < SMALL_PAYLOAD_BYTES else",
        "if size <= SMALL_PAYLOAD_BYTES else",
        "the same bytes are in one buffer or in two",
    ),
    Alike("storage/journal_reader.py", "if source.end <= self._start:", "if False:", _NOTHING_LEFT),
    Alike(
        "storage/journal_reader.py",
        "if source.end <= self._start:",
        "if source.end < self._start:",
        _NOTHING_LEFT,
    ),
    Alike(
        "storage/journal_reader.py",
        "            if self._is_over:\n                return\n",
        "            if False:\n                return\n",
        "a cut leaves no file behind it",
    ),
    Alike("storage/rows.py", "if len(values) >= FEWEST_ROWS:", "if False:", _SAME_ROWS),
    Alike("storage/rows.py", "len(values) >= FEWEST_ROWS:", "len(values) > FEWEST_ROWS:", _SAME_ROWS),
    Alike("storage/rows.py", "first_seq < LOWEST_SEQ:", "first_seq <= LOWEST_SEQ:", _SAME_ROWS),
    Alike(
        "storage/rows.py", "or were[0] > are[0]:", "or were[0] >= are[0]:", "digits are put where they are"
    ),
    Alike(
        "storage/segment.py",
        "if len(view) < FILE_HEADER_BYTES + TRAILER_BYTES:",
        "if len(view) <= FILE_HEADER_BYTES + TRAILER_BYTES:",
        _BEHIND,
    ),
    Alike("storage/segment.py", "if offset + length <= len(view)", "if offset + length < len(view)", _BEHIND),
    Alike(
        "storage/segment.py",
        "if offset + length > len(self._view):",
        "if offset + length >= len(self._view):",
        _BEHIND,
    ),
    Alike(
        "storage/snapshot.py", "if number in self._intact:", "if False:", "it is intact when it is read again"
    ),
    Alike(
        "storage/witness.py",
        "if upto > self._words[_RESERVED]:",
        "if upto >= self._words[_RESERVED]:",
        "it is raised to where it is",
    ),
    Alike(
        "storage/witness.py", "if now > self.floor_ms:", "if now >= self.floor_ms:", "it is set to what it is"
    ),
)
