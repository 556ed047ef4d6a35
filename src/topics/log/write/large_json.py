"""JSON that is too large to be decoded in one go: gone through in pieces, for what stands where.

A decoder keeps the interpreter to itself for as long as one call of it takes, on whichever thread: with 64 MB
in hand it would keep all other clients waiting. A piece takes about a millisecond, and numpy, which looks at
it, lets others run meanwhile.

What this finds is where texts, brackets and commas are. Whether all else is JSON is for the decoder to say,
which gets what was cut out. White space between tokens is left out on the way.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from topics.storage import U8
from topics.values import MIB, ApiError, invalid

# Bodies up to here are decoded in one go.
LARGE_BYTES = MIB
PIECE_BYTES = 256 * 1024
_QUOTE, _BACKSLASH, _COMMA, _BRACKET, _BRACE = b'"\\,[{'
_SPACES = np.zeros(256, bool)
_SPACES[list(b" \t\r\n")] = True
# Two of these with white space in between are two tokens, and would be one without it.
_MERGES = np.ones(256, bool)
_MERGES[list(b'[]{},:"')] = False
_NAME = re.compile(rb'[{,]("(?:[^"\\]|\\.)*"):\[$')
_LONGEST_NAME = 256

Depths = np.ndarray


class _Walk:
    """Through a text, piece by piece."""

    def __init__(self) -> None:
        self._in_text = False
        self._is_escaped = False
        self._depth = 0
        self._last = _COMMA
        self._after_space = False

    def step(self, piece: U8) -> tuple[U8, Depths]:
        """The piece without white space, and how deep each byte is: -1 inside of texts, and where it leads to
        for a bracket."""
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

    def _inside(self, piece: U8) -> np.ndarray:
        """Which bytes are in a text; of its quotes the first."""
        quotes = piece == _QUOTE
        if self._is_escaped:
            quotes[:1] = False
        backslashes = np.flatnonzero(piece == _BACKSLASH)
        was_escaped, self._is_escaped = self._is_escaped, False
        if len(backslashes):
            # Every other one of those that stand in a row, counted from the first that is none by itself.
            begins = np.concatenate(([True], np.diff(backslashes) != 1))
            starts = backslashes[begins][np.cumsum(begins) - 1]
            numbers = backslashes - starts + ((starts == 0) & was_escaped)
            escaped = backslashes[numbers & 1 == 0] + 1
            if len(escaped) and escaped[-1] == len(piece):
                self._is_escaped = True
                escaped = escaped[:-1]
            quotes[escaped] = False
        passed = np.cumsum(quotes, dtype=np.uint8)
        if self._in_text:
            passed += np.uint8(1)
        inside = (passed & 1).view(bool)
        if len(inside):
            self._in_text = bool(inside[-1])
        return inside

    def _without(self, spaces: np.ndarray, piece: U8, depths: Depths) -> tuple[U8, Depths]:
        kept = np.flatnonzero(~spaces)
        if len(kept):
            # Where white space stood before the byte.
            behind = np.diff(kept, prepend=-1 if not self._after_space else -2) != 1
            tokens = piece[kept]
            before = np.concatenate(([np.uint8(self._last)], tokens[:-1]))
            # In a text nothing was left out, so there `behind` is false.
            if (behind & _MERGES[tokens] & _MERGES[before]).any():
                raise invalid("body is not valid JSON: white space inside of a value")
            self._last, depths = int(tokens[-1]), depths[kept]
            self._after_space = bool(spaces[-1])
            return tokens, depths
        self._after_space = True
        return piece[:0], depths[:0]


def compacted(body: bytes, most_bytes: int, too_much: Callable[[], ApiError]) -> bytes:
    """The text without white space between its tokens, if that leaves no more than `most_bytes`."""
    walk, parts, size = _Walk(), [], 0
    for piece in _pieces(body):
        tokens, _ = walk.step(piece)
        size += len(tokens)
        if size > most_bytes:
            raise too_much()
        parts.append(tokens.tobytes())
    return b"".join(parts)


def _pieces(body: bytes) -> "list[U8]":
    whole = np.frombuffer(body, np.uint8)
    return [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]


@dataclass(slots=True)
class ItemLimits:
    """Of an array that is cut out, and what is said of one that exceeds them."""

    items: int
    too_many: Callable[[], ApiError]
    item_bytes: int
    # Given the item's index.
    too_large: Callable[[int], ApiError]


@dataclass(slots=True)
class Cut:
    """An object of which an array was cut out."""

    # The object with an empty array in its place.
    around: bytes
    # What the array held, in its order: each a few items with commas in between, and how many they are. Of
    # one that exceeds its limits, what stands before the item that does.
    pieces: list[tuple[bytes, int]] = field(default_factory=list)
    # Told by those who look at the rest as well: what is around may be wrong, too, and is to be told first.
    too_many: ApiError | None = None
    too_large: ApiError | None = None


def cut_out(body: bytes, name: str, limits: ItemLimits) -> Cut:
    """Take the array of this name out of an object; nothing is cut where there is none.

    Raises when what is left is large.
    """
    cutter = _Cutter(name, limits)
    walk = _Walk()
    for piece in _pieces(body):
        cutter.take(*walk.step(piece))
    return cutter.finish()


class _Cutter:
    def __init__(self, name: str, limits: ItemLimits) -> None:
        self._name = name
        self._limits = limits
        self._around = bytearray()
        # Of the array: None before it, and False behind it.
        self._is_in_array: bool | None = None
        self._items = bytearray()
        self._count = 0
        self._pieces: list[tuple[bytes, int]] = []
        self._too_many: ApiError | None = None
        self._too_large: ApiError | None = None

    @property
    def _is_refused(self) -> bool:
        return self._too_large is not None or self._too_many is not None

    def take(self, tokens: U8, depths: Depths) -> None:
        at = 0
        if not self._around and len(tokens) and tokens[0] != _BRACE:
            raise invalid("body must be a JSON object")
        if self._is_in_array is None:
            at = self._look_for_array(tokens, depths)
        if self._is_in_array:
            at = self._take_items(tokens, depths, at)
        if not self._is_in_array:
            self._add_around(tokens[at:])

    def _look_for_array(self, tokens: U8, depths: Depths) -> int:
        """Where its first item begins."""
        at = 0
        for opens in np.flatnonzero((tokens == _BRACKET) & (depths == 2)).tolist():
            self._add_around(tokens[at : opens + 1])
            at = opens + 1
            named = _NAME.search(self._around, max(len(self._around) - _LONGEST_NAME, 0))
            if named is not None and _is_called(named[1], self._name):
                self._is_in_array = True
                break
        return at

    def _take_items(self, tokens: U8, depths: Depths, at: int) -> int:
        """Where the array ends, with its bracket still to come, or the end of these tokens."""
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

    def _keep(self, tokens: U8) -> None:
        """What is refused is only counted."""
        if not self._is_refused:
            self._items += tokens.tobytes()

    def _check_sizes(self, commas: np.ndarray) -> None:
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

    def _add_around(self, tokens: U8) -> None:
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
