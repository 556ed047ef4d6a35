"""Forms that request bodies have to fill in: which names there may be, and what kind of value each takes.

A body that fits is decoded in one go. Only when it does not, its names are gone through one by one: those
that do not belong, and those that come twice, are noted, and left out of what is decoded. Whether and when
that is a mistake is decided by the caller.

Values are never looked into, unless the form says what is in them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from topics.values.errors import ApiError, invalid
from topics.values.misnamed import Misnamed
from topics.values.names import require_utf8
from topics.values.settings import MAX_BATCH_RECORDS

Body = TypeVar("Body")
Note = Callable[[Misnamed], None]

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode
_compact = msgspec.json.format
_SPACE_AND_COLON = re.compile(rb"\s:")
# In compact JSON: texts, with the colon that makes one a name, and brackets.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"(:?)|[\[\]{}]')
_OPEN = b"[{"
# Clients send the same body again and again, but for letters of numbers and ids: here they all look alike.
_CHANGING = b"123456789abcdefABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALIKE = bytes.maketrans(_CHANGING, b"0" * len(_CHANGING))
_LONGEST_PATTERN = 512
_MOST_PATTERNS = 512
# No object of a request needs nearly as many; going through more would keep others waiting.
_MOST_MEMBERS = 10_000
_FEW_ITEMS = 100
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Python reads no integer of more than 4300 digits: that would take long. One of so many is beyond every bound
# that a form has, and so is what it is replaced by.
_ENDLESS = re.compile(rb"-?[0-9]{1000,}")
_BEYOND = b"9" * 1000


class Form(Generic[Body]):
    """For structs that forbid unknown fields, all the way down."""

    def __init__(self, kind: type[Body]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        # Bodies in which no name came twice, with letters that change from one to the next made alike.
        self._patterns: set[bytes] = set()

    def read(self, body: bytes, note: Note = Misnamed.refuse) -> Body:
        """What the body says, without what does not belong there; `note` is told of that.

        Raises `invalid_request`, if need be behind the note.
        """
        if not body.isascii():
            require_utf8(body)
        try:
            # Decoding what is refused in the end takes as long as decoding anything else.
            value = None if _has_countless_names(body) else self.fitting(body)
            if value is not None:
                return value
        except UNDECODABLE:
            pass
        return self.decode(self.cleared(body, note))

    def fitting(self, body: bytes) -> Body | None:
        """What the body says, if it is certain that nothing in it is out of place.

        Raises what `UNDECODABLE` lists.
        """
        value = self._decode(body)
        # A name that comes twice is nothing that decoding would notice.
        if body.translate(_ALIKE) in self._patterns or self._has_no_twins(body):
            return value
        return None

    def _has_no_twins(self, body: bytes) -> bool:
        if not has_no_twins(body):
            return False
        # With a backslash in it, a name may be spelled with letters that are made alike.
        if len(body) <= _LONGEST_PATTERN and b"\\" not in body and self._patterns_tell_names:
            if len(self._patterns) >= _MOST_PATTERNS:
                self._patterns.clear()
            self._patterns.add(body.translate(_ALIKE))
        return True

    @cached_property
    def _patterns_tell_names(self) -> bool:
        return self.outline is not None and self.outline.is_told_by_patterns()

    def cleared(self, body: bytes, note: Note) -> bytes:
        """The body without what does not belong there, of which `note` is told."""
        misnamed = Misnamed()
        try:
            return _cleared(_compact(body, indent=-1), self.outline, misnamed)
        except UNDECODABLE as error:
            raise undecodable(error) from None
        finally:
            if misnamed:
                note(misnamed)

    def decode(self, text: bytes) -> Body:
        """What has been cleared, or an `invalid_request`."""
        try:
            return self._decode(text)
        except UNDECODABLE as error:
            raise undecodable(error) from None

    @cached_property
    def outline(self) -> "Outline | None":
        return _outline(self.kind)


def _has_countless_names(body: bytes) -> bool:
    return len(body) > _MOST_MEMBERS and body.count(b":") > _MOST_MEMBERS


def undecodable(error: Exception) -> ApiError:
    """For what `UNDECODABLE` lists."""
    if isinstance(error, RecursionError):
        return invalid("body is nested too deeply")
    is_json = isinstance(error, msgspec.ValidationError)
    return invalid(str(error) if is_json else f"body is not valid JSON: {error}")


def has_no_twins(text: bytes) -> bool:
    """Whether it is certain, without going through the names, that none comes twice in this object, nor in
    those that are its values.

    There are at least as many colons as names. As many as there are different names: each came once. Colons
    inside of texts are told apart where nothing stands between a name and its own.
    """
    members = _members(text)
    inner = [_members(value) for value in members.values() if bytes(value)[:1] == b"{"]
    different = len(members) + sum(map(len, inner))
    if text.count(b":") == different:
        return True
    return text.count(b'":') == different and b"\\" not in text and _SPACE_AND_COLON.search(text) is None


# --- name by name -------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Outline:
    """What may be inside of a value: an object of these names, one of any names, an array, or an integer."""

    names: "dict[str, Outline | None] | None" = None
    each: "Outline | None" = None
    items: "Outline | None" = None
    is_integer: bool = False

    def is_told_by_patterns(self) -> bool:
        """Where letters that change are made alike, no two names are; and no name may be anything."""
        if self.names is None:
            return self.is_integer or (self.items is not None and self.items.is_told_by_patterns())
        kept = {name.encode().translate(_ALIKE) for name in self.names}
        inner = [outline for outline in self.names.values() if outline is not None]
        return len(kept) == len(self.names) and all(outline.is_told_by_patterns() for outline in inner)


_INTEGER = Outline(is_integer=True)


def _outline(kind: Any) -> Outline | None:
    # Only mistakes pay for this import.
    from msgspec import inspect

    return _outline_of(inspect.type_info(kind))


def _outline_of(kind: Any) -> Outline | None:
    from msgspec import inspect

    if isinstance(kind, inspect.StructType):
        # What begins with a dollar sign is the server's own.
        own = {field.encode_name: field.type for field in kind.fields if field.encode_name[0] != "$"}
        return Outline(names={name: _outline_of(inner) for name, inner in own.items()})
    if isinstance(kind, inspect.DictType):
        return Outline(each=_outline_of(kind.value_type))
    if isinstance(kind, inspect.ListType):
        inner = _outline_of(kind.item_type)
        return None if inner is None else Outline(items=inner)
    if isinstance(kind, inspect.IntType):
        return _INTEGER
    if isinstance(kind, inspect.UnionType):
        found = [outline for outline in map(_outline_of, kind.types) if outline is not None]
        return next((outline for outline in found if outline is not _INTEGER), found[0] if found else None)
    return None


def _cleared(
    text: bytes, outline: Outline | None, misnamed: Misnamed, *, may_have_twins: bool = False
) -> bytes:
    """The same compact JSON without names that do not belong there, with each name once, and with integers
    that can be read: what is limited is never too large for that.

    `may_have_twins`: names of this object that come twice need not be told.
    """
    if outline is None:
        return text
    if outline.is_integer:
        return _readable(text)
    if outline.items is not None:
        return _cleared_items(text, outline.items, misnamed)
    if text[:1] != b"{":
        return text
    members, known = _members(text), outline.names
    if known is not None:
        few = islice(members, _MOST_MEMBERS)
        misnamed.note_unknown((name for name in few if name not in known), known)
    if len(members) > _MOST_MEMBERS:
        raise _too_many_members()
    if not may_have_twins:
        _note_twins(text, members, misnamed)
    cleared = {
        name: Raw(_cleared(bytes(value), outline.each if known is None else known[name], misnamed))
        for name, value in members.items()
        if known is None or name in known
    }
    return _encode(cleared)


def _readable(number: bytes) -> bytes:
    if not _ENDLESS.fullmatch(number):
        return number
    return b"-" + _BEYOND if number[:1] == b"-" else _BEYOND


def _cleared_items(text: bytes, outline: Outline, misnamed: Misnamed) -> bytes:
    if text[:1] != b"[":
        return text
    items = _items(text)
    if len(items) > MAX_BATCH_RECORDS:
        return text  # refused for that, whatever they hold
    cleared = []
    for number, item in enumerate(items):
        # Looking for twins takes longest: where items are many, and there is something to tell, it is spared.
        spared = number >= _FEW_ITEMS and bool(misnamed)
        cleared.append(_cleared(bytes(item), outline, misnamed, may_have_twins=spared))
    return b"[" + b",".join(cleared) + b"]"


def _note_twins(text: bytes, members: dict[str, Raw], misnamed: Misnamed) -> None:
    # Brackets, names and values, and what stands between them: as much as there is leaves no room for more.
    shortest = 1 + sum([len(name.encode()) + len(value) + 4 for name, value in members.items()])
    if members and len(text) != shortest:
        seen: set[str] = set()
        for number, name in enumerate(_names_in(text)):
            if name in seen:
                misnamed.note_duplicate(name)
            seen.add(name)
            if number == _MOST_MEMBERS:
                raise _too_many_members()


def _too_many_members() -> ApiError:
    return invalid(f"an object has at most {_MOST_MEMBERS} names", {"max": _MOST_MEMBERS})


def _names_in(text: bytes) -> Iterator[str]:
    """The names of a compact object, each as often as it comes; not those of objects inside of it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first == 0x22:
            if depth == 1 and token[1]:
                yield msgspec.json.decode(token[0][:-1])
        elif first in _OPEN:
            depth += 1
        else:
            depth -= 1
