"""JSON that is too large to decode in one call: scanned in pieces for strings, brackets and commas.

One call of a decoder holds the interpreter lock until it returns, on whichever thread it runs: with 64 MiB
that would stop all other requests. A piece takes about a millisecond, and numpy, which scans it, releases the
lock.

The scan finds structure only. The caller decodes the text that was cut out, and so learns whether it is JSON.
White space between tokens is dropped on the way.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.core import MIB, ApiError, invalid

# Bodies up to this size are decoded in one call.
LARGE_BYTES = MIB
PIECE_BYTES = 256 * 1024
_QUOTE, _BACKSLASH, _COMMA, _BRACKET, _BRACE = b'"\\,[{'
_SPACES = np.zeros(256, bool)
_SPACES[list(b" \t\r\n")] = True
# Two of these bytes with white space in between belong to two tokens, and to one without it.
_MERGES = np.ones(256, bool)
_MERGES[list(b'[]{},:"')] = False
_NAME = re.compile(rb'[{,]("(?:[^"\\]|\\.)*"):\[$')
_LONGEST_NAME = 256

Bytes = NDArray[np.uint8]
Depths = NDArray[np.int32]


class _Scanner:
    """The state of a scan between two pieces."""

    def __init__(self) -> None:
        self._in_string = False
        self._is_escaped = False
        self._depth = 0
        self._last = _COMMA
        self._after_space = False

    def scan(self, piece: Bytes) -> tuple[Bytes, Depths]:
        """The piece without white space, and the depth of each byte: -1 inside of strings; of a bracket, the
        depth after it."""
        inside = self._inside(piece)
        kinds = piece | 32
        changes = (kinds == 123).view(np.int8) - (kinds == 125).view(np.int8)
        changes[inside] = 0
        depths = np.cumsum(changes, dtype=np.int32)
        depths += self._depth
        if len(depths):
            self._depth = int(depths[-1])
        depths[inside] = -1
        spaces = _SPACES[piece]
        spaces[inside] = False
        if spaces.any() or self._after_space:
            piece, depths = self._without(spaces, piece, depths)
        elif len(piece):
            self._last = int(piece[-1])
        return piece, depths

    def _inside(self, piece: Bytes) -> NDArray[np.bool_]:
        """Which bytes are in a string. Its opening quote counts, its closing quote does not."""
        quotes = piece == _QUOTE
        if self._is_escaped:
            quotes[:1] = False
        backslashes = np.flatnonzero(piece == _BACKSLASH)
        was_escaped, self._is_escaped = self._is_escaped, False
        if len(backslashes):
            # In a row of backslashes every other one escapes, counted from the first that is not escaped.
            begins = np.concatenate(([True], np.diff(backslashes) != 1))
            starts = backslashes[begins][np.cumsum(begins) - 1]
            numbers = backslashes - starts + ((starts == 0) & was_escaped)
            escaped = backslashes[numbers & 1 == 0] + 1
            if len(escaped) and escaped[-1] == len(piece):
                self._is_escaped = True
                escaped = escaped[:-1]
            quotes[escaped] = False
        passed = np.cumsum(quotes, dtype=np.uint8)
        if self._in_string:
            passed += np.uint8(1)
        inside: NDArray[np.bool_] = (passed & 1).view(np.bool_)
        if len(inside):
            self._in_string = bool(inside[-1])
        return inside

    def _without(self, spaces: NDArray[np.bool_], piece: Bytes, depths: Depths) -> tuple[Bytes, Depths]:
        kept = np.flatnonzero(~spaces)
        if not len(kept):
            self._after_space = True
            return piece[:0], depths[:0]
        # No white space is dropped inside of strings, so `after` is false there.
        after = np.diff(kept, prepend=-1 if not self._after_space else -2) != 1
        tokens = piece[kept]
        before = np.concatenate(([np.uint8(self._last)], tokens[:-1]))
        if (after & _MERGES[tokens] & _MERGES[before]).any():
            raise invalid("body is not valid JSON: white space inside of a value")
        self._last, depths = int(tokens[-1]), depths[kept]
        self._after_space = bool(spaces[-1])
        return tokens, depths


def compact_in_steps(body: bytes, most_bytes: int, too_much: Callable[[], ApiError]) -> bytes:
    """The JSON without white space between its tokens; raises if more than `most_bytes` are left."""
    scanner, parts, size = _Scanner(), [], 0
    for piece in _pieces(body):
        tokens, _ = scanner.scan(piece)
        size += len(tokens)
        if size > most_bytes:
            raise too_much()
        parts.append(tokens.tobytes())
    return b"".join(parts)


def _pieces(body: bytes) -> Iterator[Bytes]:
    whole = np.frombuffer(body, np.uint8)
    return (whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES))


@dataclass(slots=True)
class ItemLimits:
    """Limits of an array that is cut out, and the errors for exceeding them."""

    items: int
    too_many: Callable[[], ApiError]
    item_bytes: int
    # Takes the index of the item.
    too_large: Callable[[int], ApiError]


@dataclass(slots=True)
class Cut:
    """An object from which one array was cut out."""

    # The object with an empty array in its place.
    around: bytes
    # The items of the array: text of some items with commas between them, and their number. If a limit is
    # exceeded, the items before the one that exceeds it.
    pieces: list[tuple[bytes, int]] = field(default_factory=list)
    # The caller raises these, after the mistakes in `around`.
    too_many: ApiError | None = None
    too_large: ApiError | None = None


def cut_out(body: bytes, name: str, limits: ItemLimits) -> Cut:
    """Cut the array of this name out of an object; nothing is cut if there is none.

    Raises if the rest of the object is large.
    """
    cutter = _Cutter(name, limits)
    scanner = _Scanner()
    for piece in _pieces(body):
        cutter.take(*scanner.scan(piece))
    return cutter.finish()


class _Cutter:
    def __init__(self, name: str, limits: ItemLimits) -> None:
        self._name = name
        self._limits = limits
        self._around = bytearray()
        # None before the array, False after it.
        self._is_in_array: bool | None = None
        self._items = bytearray()
        self._count = 0
        self._pieces: list[tuple[bytes, int]] = []
        self._too_many: ApiError | None = None
        self._too_large: ApiError | None = None

    @property
    def _is_refused(self) -> bool:
        return self._too_large is not None or self._too_many is not None

    def take(self, tokens: Bytes, depths: Depths) -> None:
        at = 0
        if not self._around and len(tokens) and tokens[0] != _BRACE:
            raise invalid("body must be a JSON object")
        if self._is_in_array is None:
            at = self._look_for_array(tokens, depths)
        if self._is_in_array:
            at = self._take_items(tokens, depths, at)
        if not self._is_in_array:
            self._add_around(tokens[at:])

    def _look_for_array(self, tokens: Bytes, depths: Depths) -> int:
        """The place of the first item of the array, if it begins in these tokens."""
        at = 0
        for opens in np.flatnonzero((tokens == _BRACKET) & (depths == 2)).tolist():
            self._add_around(tokens[at : opens + 1])
            at = opens + 1
            named = _NAME.search(self._around, max(len(self._around) - _LONGEST_NAME, 0))
            if named is not None and _is_called(named[1], self._name):
                self._is_in_array = True
                break
        return at

    def _take_items(self, tokens: Bytes, depths: Depths, at: int) -> int:
        """The place of the closing bracket of the array, or the end of the tokens."""
        depths = depths[at:]
        ends = np.flatnonzero(depths == 1)
        stop = at + int(ends[0]) if len(ends) else len(tokens)
        commas = np.flatnonzero((tokens[at:stop] == _COMMA) & (depths[: stop - at] == 2))
        if len(commas):
            self._check_sizes(commas)
            cut = at + int(commas[-1])
            self._keep(tokens[at:cut])
            self._end_piece(len(commas))
            at = cut + 1
        self._keep(tokens[at:stop])
        self._check_size(self._count, len(self._items))
        if len(ends):
            if self._items or self._count or self._is_refused:
                self._end_piece(1)
            self._is_in_array = False
        return stop

    def _keep(self, tokens: Bytes) -> None:
        """Collect items. Items of a refused array are only counted."""
        if not self._is_refused:
            self._items += tokens.tobytes()

    def _check_sizes(self, commas: NDArray[np.intp]) -> None:
        lengths = np.diff(commas, prepend=-1 - len(self._items)) - 1
        longest = int(lengths.argmax())
        self._check_size(self._count + longest, int(lengths[longest]))

    def _check_size(self, index: int, size: int) -> None:
        if size > self._limits.item_bytes and not self._is_refused:
            self._too_large = self._limits.too_large(index)
            self._items.clear()

    def _end_piece(self, count: int) -> None:
        self._count += count
        if self._count > self._limits.items and self._too_many is None:
            self._too_many = self._limits.too_many()
        if not self._is_refused:
            self._pieces.append((bytes(self._items), count))
        self._items.clear()

    def _add_around(self, tokens: Bytes) -> None:
        self._around += tokens.tobytes()
        if len(self._around) > LARGE_BYTES:
            raise invalid(f"without its {self._name}, this is more than {LARGE_BYTES} bytes")

    def finish(self) -> Cut:
        if self._is_in_array:
            raise invalid("body is not valid JSON: it ends too soon")
        return Cut(bytes(self._around), self._pieces, self._too_many, self._too_large)


def _is_called(text: bytes, name: str) -> bool:
    try:
        return bool(msgspec.json.decode(text) == name)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def without_records(body: bytes) -> bytes:
    """The JSON object with an empty array for its records; raises for a large object even so."""
    limits = ItemLimits(len(body), _never, len(body), lambda _: _never())
    return cut_out(body, "records", limits).around


def _never() -> ApiError:
    raise AssertionError("no array has more items, or larger ones, than its text has bytes")
