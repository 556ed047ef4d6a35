"""Changes that a survey would make and that make no difference, each with the reason why no test can notice.

What belongs here is another program that does the same: a boundary where both sides agree, a way around work
that comes to the same end. What merely has no test does not.
"""

from __future__ import annotations

from tests.mutation.alike_change import Alike
from tests.mutation.alike_flow import FLOW
from tests.mutation.alike_writes import WRITES

_ONE_BY_ONE = "frames that are not taken together have the same effect, one by one"
_NOTHING_LEFT = "of a file that ends there no frame is read"
_BEHIND = "a footer and a trailer follow, so that nothing intact ends there"
_COUNTED = "the other way counts sizes, and finds the same rows"

ALIKE: tuple[Alike, ...] = (
    *WRITES,
    *FLOW,
    Alike(
        "log/read/audit.py",
        "if h[1] > after]",
        "if h[1] >= after]",
        "what is left of a hole that ends there is empty, and a ledger passes over empty ranges",
    ),
    Alike(
        "log/read/audit.py",
        "topic.runs[max(bisect_right",
        "topic.runs[min(bisect_right",
        "the floor lies in the first run, and of runs in front of the first seq nothing is told",
    ),
    Alike(
        "log/read/page.py",
        "if position < stop_before - 1:",
        "if position <= stop_before - 1:",
        "a walk over nothing leaves the cursor where it is",
    ),
    Alike("log/read/page.py", "if found is not None:", "if False:", _COUNTED),
    Alike("log/read/page.py", "if last_byte - first_byte <= self.budget:", "if False:", _COUNTED),
    Alike(
        "log/read/page.py",
        "if last_byte - first_byte <= self.budget:",
        "if last_byte - first_byte < self.budget:",
        _COUNTED,
    ),
    Alike(
        "log/read/page.py",
        "if columns.start_of(examined) - columns.start_of(start) <= self.budget:",
        "if False:",
        _COUNTED,
    ),
    Alike(
        "log/read/page.py",
        "columns.start_of(start) <= self.budget:",
        "columns.start_of(start) < self.budget:",
        _COUNTED,
    ),
    Alike(
        "log/read/render.py",
        "if shape.is_stored(columns):",
        "if False:",
        "what is cut and joined again is the stored row",
    ),
    Alike(
        "log/read/render.py",
        "if last - first + 1 == len(indexes):",
        "if False:",
        "one stretch is a case of several",
    ),
    Alike(
        "log/read/render.py",
        "data_end + len(META_KEY) < end:",
        "data_end + len(META_KEY) <= end:",
        "behind the data comes the end of the row, which is shorter than the key, or the key and a value",
    ),
    Alike(
        "log/read/scan.py",
        "if position < stop_before - 1:",
        "if position <= stop_before - 1:",
        "a walk over nothing leaves the position where it is",
    ),
    Alike(
        "log/read/scan.py",
        "if len(parts) == 1:",
        "if False:",
        "a table of one batch is that batch",
    ),
    Alike(
        "log/remove/deletion.py",
        "ledger.DELETED)[0] if limit > floor else 0",
        "ledger.DELETED)[0] if limit >= floor else 0",
        "nothing live lies in front of the floor",
    ),
    Alike(
        "log/remove/deletion.py",
        "if run.live_count > (0 if",
        "if run.live_count >= (0 if",
        "a run of which all goes has none that is left",
    ),
    Alike(
        "log/remove/removal.py",
        "        if stop > start:\n            try:",
        "        if stop >= start:\n            try:",
        "no record is removed, and an empty range is passed over by the ledger",
    ),
    Alike(
        "log/remove/removal.py",
        "topic.runs[0].base < floor:",
        "topic.runs[0].base <= floor:",
        "of a run that begins at the floor nothing is passed",
    ),
    Alike(
        "log/remove/removal.py",
        "    if run.hot is not None:\n        return run.hot.ts_at",
        "    if False:\n        return run.hot.ts_at",
        "the columns of a run in memory have the same times",
    ),
    Alike(
        "log/remove/retention.py",
        "if topic.floor_ts >= oldest_allowed:",
        "if topic.floor_ts > oldest_allowed:",
        "no record is found to be older",
    ),
    Alike(
        "log/remove/retention.py",
        "if run.first_ts < oldest_allowed:",
        "if run.first_ts <= oldest_allowed:",
        "none of its records is found to be older",
    ),
    Alike(
        "log/remove/retention.py",
        "topic.live_count > config.cap_records:",
        "topic.live_count >= config.cap_records:",
        "none has to go",
    ),
    Alike(
        "log/remove/retention.py",
        "topic.live_bytes > config.cap_bytes:",
        "topic.live_bytes >= config.cap_bytes:",
        "none has to go",
    ),
    Alike(
        "log/remove/retention.py",
        "while start + count < run.count and",
        "while start + count <= run.count and",
        "it looks further, and finds the same record",
    ),
    Alike(
        "log/remove/retention.py",
        "start + count) < excess:",
        "start + count) <= excess:",
        "it looks further, and finds the same record",
    ),
    Alike(
        "log/remove/search.py",
        "run.hot is not None and run.base < limit]",
        "run.hot is not None and run.base <= limit]",
        "of a run that begins at the limit nothing is chosen",
    ),
    Alike(
        "log/remove/tags.py",
        "if 2 * len(self.postings) > self.count:",
        "if False:",
        "names that are shared are equal to those that are not",
    ),
    Alike(
        "log/remove/tags.py",
        "if 2 * len(self.postings) > self.count:",
        "if 2 * len(self.postings) >= self.count:",
        "names that are shared are equal to those that are not",
    ),
    Alike(
        "log/remove/tags.py",
        "if len(fresh) <= _FEW_FRESH:",
        "if len(fresh) < _FEW_FRESH:",
        "both ways put them in order",
    ),
    Alike(
        "log/remove/tags.py",
        "if span > _DENSE * len(offsets):",
        "if False:",
        "both ways put them in order",
    ),
    Alike(
        "log/remove/tags.py",
        "if span > _DENSE * len(offsets):",
        "if span >= _DENSE * len(offsets):",
        "both ways put them in order",
    ),
    Alike(
        "log/remove/tags.py",
        "if first <= self.base and self.last < stop:",
        "if first < self.base and self.last < stop:",
        "the other way looks at each tag, and drops the same",
    ),
    Alike(
        "log/remove/tags.py",
        "generation.base <= first_seq <",
        "generation.base < first_seq <",
        "a lookup asks all generations",
    ),
    Alike(
        "log/remove/tags.py",
        "first_seq < generation.base + _MAX_SPAN",
        "first_seq <= generation.base + _MAX_SPAN",
        "that offset still fits into 32 bits",
    ),
    Alike(
        "log/packing.py",
        "if 2 * len(self.names) <= count:",
        "if 2 * len(self.names) < count:",
        "names that are shared are equal to those that are not",
    ),
    Alike(
        "log/packing.py",
        "if column.itemsize < values.itemsize:",
        "if column.itemsize <= values.itemsize:",
        "of the same width, a copy says the same",
    ),
    Alike(
        "log/lives.py",
        "if len(self._recent) >= _RECENT:",
        "if len(self._recent) > _RECENT:",
        "names are put in order one name later",
    ),
    Alike(
        "log/lives.py",
        "if not self._recent:",
        "if False:",
        "with none put among them, a copy of the others says the same",
    ),
    Alike(
        "log/recover/lost_frames.py",
        "head > topic.head:\n            topic.add_hole",
        "head >= topic.head:\n            topic.add_hole",
        "a hole without seqs is not made",
    ),
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
    Alike("storage/frame_stretch.py", "if at < self._alone_until:", "if False:", _ONE_BY_ONE),
    Alike(
        "storage/frame_stretch.py", "if at < self._alone_until:", "if at <= self._alone_until:", _ONE_BY_ONE
    ),
    Alike(
        "storage/frame_stretch.py",
        "if at + HEADER_BYTES > stop:",
        "if at + HEADER_BYTES >= stop:",
        _ONE_BY_ONE,
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
        _ONE_BY_ONE,
    ),
    Alike(
        "storage/frame_stretch.py",
        '(headers["synced"] <= (begins',
        '(headers["synced"] < (begins',
        _ONE_BY_ONE,
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
    Alike("log/recover/reload.py", "if first < topic.floor or", "if first <= topic.floor or", _ONE_BY_ONE),
    Alike("log/recover/reload.py", "last > topic.head or", "last >= topic.head or", _ONE_BY_ONE),
    Alike(
        "log/recover/reload.py",
        "if position < run.start_position:",
        "if position <= run.start_position:",
        "it is lowered to where it is",
    ),
    Alike(
        "log/recover/small_frames.py",
        "item.count <= SMALL_RECORDS:",
        "item.count < SMALL_RECORDS:",
        _ONE_BY_ONE,
    ),
    Alike(
        "log/topic.py",
        "if position < run.start_position:",
        "if position <= run.start_position:",
        "a run that is listed as displaced without being so is looked at twice and taken once",
    ),
)


def reason(path: str, text: str, changed: str) -> str | None:
    """Why this change of a file makes no difference, if it is known to make none."""
    for one in ALIKE:
        if one.path == path and text.replace(one.old, one.new) == changed:
            return one.why
    return None
