"""A few records of a run in memory, taken apart one by one.

Columns of a run are made for thousands of records, and take as long to make whether they are asked for one or
for all of them. Whoever follows a topic as it is written asks for the last one, again and again.
"""

from array import array

import numpy as np

from topics.log.run import Run
from topics.storage import END, META_KEY, Records

# With more, the columns are worth making.
FEW = 16


def few_records(run: Run, start: int, stop: int, max_bytes: int) -> Records | None:
    """All records of a stretch; None where they have to be asked of columns.

    That is where they are not in memory, or are many, or some are deleted, or their rows exceed the bytes.
    """
    hot = run.hot
    if hot is None or stop - start > FEW or run.live_between(start, stop) < stop - start:
        return None
    begin, end = hot.ends[start - 1] if start else 0, hot.ends[stop - 1]
    if end - begin > max_bytes:
        return None
    block = bytes(memoryview(hot.rows)[begin:end])
    data: list[bytes] = []
    metas: list[bytes | None] = []
    for index in range(start, stop):
        end = hot.ends[index] - begin - len(END)
        meta_len = 0 if hot.meta_lens is None else hot.meta_lens[index]
        metas.append(block[end - meta_len : end] if meta_len else None)
        if meta_len:
            end -= meta_len + len(META_KEY)
        data.append(block[end - (hot.size_between(index, index + 1) - meta_len) : end])
    return Records(
        np.arange(hot.base + start, hot.base + stop),
        data,
        None if hot.meta_lens is None else metas,
        _names(hot.node_codes, hot.node_names.names, start, stop),
        _names(hot.tag_codes, hot.tag_names.names, start, stop),
        None if hot.hops is None else np.frombuffer(hot.hops[start:stop], np.uint8),
    )


def _names(codes: "array[int] | None", names: list[str], start: int, stop: int) -> list[str | None] | None:
    return None if codes is None else [names[code - 1] if code else None for code in codes[start:stop]]
