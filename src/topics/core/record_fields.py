"""The named fields of a record: short texts beside its data and meta.

Each is declared here once. Codec, memory, segments, Arrow columns, checks and copies loop over `FIELDS`. What
only one of them means has code of its own: readers leave out records by node, and select and delete by tag.
CONTRIBUTING.md says how another field is added.
"""

from typing import NamedTuple, TypeAlias


class NamedField(NamedTuple):
    # In requests. A row has it as `$name`; a segment has the columns `name_codes` and `names`.
    name: str
    max_bytes: int
    # Set in frames with a record that has a value.
    flag: int
    # Stored rows show it. A field that is not in the row is shown to readers that ask for it.
    is_in_row: bool
    # Segments have the records of each value beside each other.
    is_indexed: bool


# In the order in which a frame has their values.
FIELDS = (
    NamedField("tag", 256, flag=2, is_in_row=False, is_indexed=True),
    NamedField("node", 128, flag=4, is_in_row=True, is_indexed=False),
)
TAG_AT, NODE_AT = 0, 1

# The values of a field, one for each record; None if no record has one.
Column: TypeAlias = list[str | None] | None
# A column for each field; empty if no record has a value of any field.
NameColumns: TypeAlias = tuple[Column, ...]


def names_of(columns: list[Column]) -> NameColumns:
    """The columns, one for each field, or nothing if all of them are None."""
    return tuple(columns) if any(column is not None for column in columns) else ()
