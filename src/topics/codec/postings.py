"""Postings: the offsets of the records that carry a tag."""

from struct import Struct
from typing import TypeAlias

# Four bytes for each offset; an integer for a tag that one record carries, as many tags are.
Offsets: TypeAlias = int | bytearray
OFFSET = Struct("=I")


def post(tags: list[str | None], offset: int, postings: dict[str, Offsets], fresh: list[str], /) -> None:
    """Add the tags of consecutive records, the first of which has this offset, to `postings`.

    Tags that `postings` did not have are appended to `fresh`.
    """
    get, encoded = postings.get, OFFSET.pack
    for tag in tags:
        if tag is not None:
            held = get(tag)
            if held is None:
                postings[tag] = offset
                fresh.append(tag)
            elif type(held) is int:
                postings[tag] = bytearray(encoded(held) + encoded(offset))
            else:
                held += encoded(offset)  # type: ignore[operator]
        offset += 1
