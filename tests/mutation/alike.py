"""Changes that a survey would make and that make no difference, each with the reason why no test can notice.

What belongs here is another program that does the same: a boundary where both sides agree, a way around work
that comes to the same end. What merely has no test does not.
"""

from __future__ import annotations

from tests.mutation.alike_change import Alike
from tests.mutation.alike_flow import FLOW
from tests.mutation.alike_storage import ONE_BY_ONE, STORAGE
from tests.mutation.alike_writes import WRITES

_SAME_ENDS = "both ways find where the rows end"
_COUNTED_SIZES = "sizes that are added up otherwise come to the same"
_COMPLETE = "a run that is full is complete, and takes no plain rows any more"
_MOVED = "where a run begins makes no difference to its records"
_COUNTED = "the other way counts sizes, and finds the same rows"

ALIKE: tuple[Alike, ...] = (
    *WRITES,
    *FLOW,
    *STORAGE,
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
        "log/run.py",
        "and kept_bytes >= _KEPT_ROWS",
        "and kept_bytes > _KEPT_ROWS",
        "the same rows lie elsewhere",
    ),
    Alike("log/run.py", "elif batch.count <= _FEW and", "elif batch.count < _FEW and", _SAME_ENDS),
    Alike("log/run.py", "_FEW and batch.ends is None and", "_FEW and batch.ends is not None and", _SAME_ENDS),
    Alike(
        "log/run.py",
        "while self.ts_starts and self.ts_starts[-1] >= count:",
        "while self.ts_starts and self.ts_starts[-1] > count:",
        "a time from which on there is no record is that of none",
    ),
    Alike(
        "log/run.py",
        "        if self.data_lens is not None:\n            return total_at",
        "        if False:\n            return total_at",
        _COUNTED_SIZES,
    ),
    Alike("log/run.py", "if len(gaps) >= _FEW:", "if False:", _COUNTED_SIZES),
    Alike("log/run.py", "if len(gaps) >= _FEW:", "if len(gaps) > _FEW:", _COUNTED_SIZES),
    Alike("log/run.py", "if stop - start > 1 and", "if stop - start >= 1 and", "one row is like itself"),
    Alike(
        "log/run.py",
        "if self.hot is not None and self.dead is None:\n            return stop",
        "if False:\n            return stop",
        _COUNTED_SIZES,
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
    Alike("log/recover/reload.py", "if first < topic.floor or", "if first <= topic.floor or", ONE_BY_ONE),
    Alike("log/recover/reload.py", "last > topic.head or", "last >= topic.head or", ONE_BY_ONE),
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
        ONE_BY_ONE,
    ),
    Alike(
        "log/topic.py",
        "            or run.count >= unsealed.max_events\n",
        "            or run.count > unsealed.max_events\n",
        _COMPLETE,
    ),
    Alike(
        "log/topic.py",
        "            or hot.size >= unsealed.max_bytes\n",
        "            or hot.size > unsealed.max_bytes\n",
        _COMPLETE,
    ),
    Alike(
        "log/topic.py",
        "or position < run.start_position\n",
        "or position <= run.start_position\n",
        "the other way takes them as well",
    ),
    Alike("log/topic.py", "if hot.size > _MOVED_BYTES and", "if hot.size >= _MOVED_BYTES and", _MOVED),
    Alike(
        "log/topic.py",
        "and not (hot.size > _MOVED_BYTES and",
        "and not (hot.size >= _MOVED_BYTES and",
        _MOVED,
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
