"""Whether the columns of a run fit each other: checksums vouch for mistakes just as well."""

from collections.abc import Iterator

import numpy as np

from topics.storage import DATA_KEY, HEAD, I64, META_KEY, Columns, RunEntry, Segment, SegmentDamaged


def run_findings(segment: Segment, entry: RunEntry) -> Iterator[str]:
    """What is wrong with one run, in words that continue "its ...". Damage ends the search."""
    try:
        segment.verify(entry)
        columns = segment.columns(entry)
        yield from column_findings(columns)
        if columns.tag_codes is not None:
            yield from _tag_findings(segment, entry, columns)
    except SegmentDamaged as damage:
        yield str(damage).partition(": ")[2]


def column_findings(columns: Columns) -> Iterator[str]:
    ends = columns.ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    if not columns.count or len(ends) != columns.count:
        yield "there are not as many rows as records"
        return
    if int(ends[-1]) != len(columns.rows) or (lengths <= 0).any():
        yield "the rows do not end where they should"
        return
    if (np.diff(columns.ts) < 0).any():
        yield "times fall from one record to the next"
    for name, codes, names in (
        ("node", columns.node_codes, columns.nodes),
        ("tag", columns.tag_codes, columns.tags),
    ):
        if codes is not None and int(codes.max()) > len(names):
            yield f"a record has a {name} that is not in the list of {name}s"
    yield from _row_findings(columns, ends, lengths)


def _row_findings(columns: Columns, ends: I64, lengths: I64) -> Iterator[str]:
    rows = np.frombuffer(columns.rows, np.uint8)
    if (rows[ends - 1] != ord("\n")).any() or (rows[ends - 2] != ord("}")).any():
        yield "a row is not closed"
    data_begins = columns.data_ends() - columns.data_lens
    if (data_begins - len(DATA_KEY) < ends - lengths).any():
        yield "a record is longer than its row"
        return
    if not _has_at(rows, data_begins - len(DATA_KEY), DATA_KEY):
        yield "data does not begin where it should"
    if columns.meta_lens is not None:
        with_meta = columns.meta_lens > 0
        if not _has_at(rows, columns.data_ends()[with_meta], META_KEY):
            yield "meta does not begin where it should"
    view = memoryview(columns.rows)
    for index, begin in enumerate((ends - lengths).tolist()):
        prefix = b"{" + HEAD % (columns.base + index, columns.ts[index])
        if view[begin : begin + len(prefix)] != prefix:
            yield f"the row of seq {columns.base + index} is another record's"
            return


def _has_at(rows: np.ndarray, begins: I64, text: bytes) -> bool:
    return all(bool((rows[begins + at] == letter).all()) for at, letter in enumerate(text))


def _tag_findings(segment: Segment, entry: RunEntry, columns: Columns) -> Iterator[str]:
    """The postings say the same as the codes of the records."""
    assert columns.tag_codes is not None
    if columns.tags != sorted(set(columns.tags), key=str.encode):
        yield "tags are not sorted"
        return
    order = np.argsort(columns.tag_codes, kind="stable")
    tagged = order[columns.tag_codes[order] > 0]
    counts = np.bincount(columns.tag_codes, minlength=len(columns.tags) + 1)[1:]
    sizes = [len(segment.tagged(entry, code)) for code in range(1, len(columns.tags) + 1)]
    if counts.tolist() != sizes or not np.array_equal(segment.tagged(entry, 1, len(columns.tags)), tagged):
        yield "the lists of records by tag do not say what the records say"
