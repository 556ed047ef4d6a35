"""Strict decoding of JSON: every name is known, and none occurs twice.

A body that fits is decoded in one go; any other body is refused. `explain` then walks through the names of a
refused body, and returns the unknown and duplicate ones with a body that has none of them. Values are not
examined, unless the type says what is in them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from topics.core.errors import ApiError, invalid
from topics.core.names import nearest, require_utf8
from topics.core.settings import MAX_BATCH_RECORDS

# A body may hold a million names: only the first ones are reported, and fewer get a suggestion.
_MAX_NAMES = 100
_MAX_COMPARED = 20


class UnknownFields:
    """Unknown and duplicate names of one request. False if there are none."""

    __slots__ = ("did_you_mean", "duplicate", "unknown")

    def __init__(self) -> None:
        # Each name once, in the order of the request.
        self.unknown: list[str] = []
        self.did_you_mean: dict[str, str] = {}
        self.duplicate: list[str] = []

    @classmethod
    def among(cls, names: Iterable[str], known: Collection[str]) -> "UnknownFields":
        """Return the names that are not known."""
        fields = cls()
        fields.add_unknown((name for name in names if name not in known), known)
        return fields

    def __bool__(self) -> bool:
        return bool(self.unknown or self.duplicate)

    def add_unknown(self, names: Iterable[str], known: Collection[str]) -> None:
        """Add unknown names. `known` are the names that may have been meant."""
        for name in names:
            if len(self.unknown) < _MAX_NAMES and name not in self.unknown:
                self.unknown.append(name)
                near = nearest(name, known) if len(self.unknown) <= _MAX_COMPARED else None
                if near is not None:
                    self.did_you_mean[name] = near

    def add_duplicate(self, name: str) -> None:
        if len(self.duplicate) < _MAX_NAMES and name not in self.duplicate:
            self.duplicate.append(name)

    def join(self, others: "UnknownFields") -> None:
        self.unknown += [name for name in others.unknown if name not in self.unknown]
        self.did_you_mean = others.did_you_mean | self.did_you_mean
        for name in others.duplicate:
            self.add_duplicate(name)

    def ignore_unknown(self) -> None:
        """Keep only the duplicate names."""
        self.unknown, self.did_you_mean = [], {}

    def refuse(self) -> None:
        raise self.refusal()

    def refusal(self) -> ApiError:
        sentences = []
        if self.unknown:
            sentences.append(f"unknown: {', '.join(map(self._described, self.unknown))}")
        if self.duplicate:
            sentences.append(f"more than once: {', '.join(map(_quoted, self.duplicate))}")
        return invalid("; ".join(sentences), self._detail())

    def _described(self, name: str) -> str:
        near = self.did_you_mean.get(name)
        return _quoted(name) if near is None else f"{_quoted(name)} (did you mean {_quoted(near)}?)"

    def _detail(self) -> dict[str, Any]:
        detail: dict[str, Any] = {}
        if self.unknown:
            detail |= {"unknown": self.unknown, "did_you_mean": self.did_you_mean}
        if self.duplicate:
            detail["duplicate"] = self.duplicate
        return detail

    def mention_in(self, error: ApiError) -> None:
        """Add the names to another mistake in the same request."""
        if self and error.status == 400:
            error.detail = {**(error.detail or {}), **self._detail()}


def _quoted(name: str) -> str:
    return f'"{name}"' if len(name) <= 64 else f'"{name[:64]}…"'


Body = TypeVar("Body")
Note = Callable[[UnknownFields], None]

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode
_compact = msgspec.json.format
_SPACE_AND_COLON = re.compile(rb"\s:")
# In compact JSON: strings, with the colon that makes one a name, and brackets.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"(:?)|[\[\]{}]')
_OPEN = b"[{"
# Clients repeat the same body with other numbers and ids. These characters are replaced to compare bodies.
_CHANGING = b"123456789abcdefABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALIKE = bytes.maketrans(_CHANGING, b"0" * len(_CHANGING))
_MAX_PATTERN_BYTES = 512
_MAX_PATTERNS = 512
# No object of a request needs nearly as many names; a walk through more would block the event loop.
_MAX_MEMBERS = 10_000
_FEW_ITEMS = 100
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Python reads no integer of more than 4300 digits, because that takes long. A longer one is above every
# limit, and so is its replacement.
_ENDLESS = re.compile(rb"-?[0-9]{1000,}")
_TOO_LARGE = b"9" * 1000


class NotDecoded(Exception):
    """A body does not fit its type, or has a name that is unknown or occurs twice. `explain` says which."""


class StrictDecoder(Generic[Body]):
    """A decoder for structs that forbid unknown fields at every level."""

    def __init__(self, kind: type[Body]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        # Bodies without duplicate names, with the characters that change from one to the next replaced.
        self._patterns: set[bytes] = set()

    def decode(self, body: bytes) -> Body:
        """Decode a body. Raises `NotDecoded` for a mistake in it, or `invalid_request` if it is not UTF-8."""
        if not body.isascii():
            require_utf8(body)
        # `explain` refuses a body with too many names; to decode it first would take as long as its size.
        if len(body) <= _MAX_MEMBERS or body.count(b":") <= _MAX_MEMBERS:
            try:
                value = self._decode(body)
                # The decoder does not notice a name that occurs twice.
                if body.translate(_ALIKE) in self._patterns or self._has_no_duplicates(body):
                    return value
            except UNDECODABLE:
                pass
        raise NotDecoded

    def decode_checked(self, text: bytes) -> Body:
        """Decode a text whose names were checked. Raises `invalid_request` for any other mistake."""
        try:
            return self._decode(text)
        except UNDECODABLE as error:
            raise undecodable(error) from None

    def read(self, body: bytes, note: Note = UnknownFields.refuse) -> Body:
        """Decode a body, and explain what is wrong with it. `note` receives unknown and duplicate names."""
        try:
            return self.decode(body)
        except NotDecoded:
            return self.decode_checked(explain(body, self).tell(note))

    def _has_no_duplicates(self, body: bytes) -> bool:
        if not has_no_duplicates(body):
            return False
        # With a backslash, a name may be spelled with characters that are replaced.
        if len(body) <= _MAX_PATTERN_BYTES and b"\\" not in body and self._patterns_tell_names:
            if len(self._patterns) >= _MAX_PATTERNS:
                self._patterns.clear()
            self._patterns.add(body.translate(_ALIKE))
        return True

    @cached_property
    def _patterns_tell_names(self) -> bool:
        return self.outline is not None and self.outline.is_told_by_patterns()

    @cached_property
    def outline(self) -> "Outline | None":
        return _outline(self.kind)


@dataclass(slots=True, frozen=True)
class Explanation:
    """The unknown and duplicate names in a refused body."""

    fields: UnknownFields
    # The body without these names, as compact JSON.
    text: bytes
    # The mistake that ended the walk through the names, if one did.
    error: ApiError | None = None

    def tell(self, note: Note) -> bytes:
        """Pass the names to `note`, and return the text. Raises the error."""
        if self.fields:
            note(self.fields)
        if self.error is not None:
            raise self.error
        return self.text


def explain(body: bytes, decoder: StrictDecoder[Any]) -> Explanation:
    """Find the names in a refused body that are unknown or occur twice."""
    fields = UnknownFields()
    try:
        return Explanation(fields, _cleared(_compact(body, indent=-1), decoder.outline, fields))
    except UNDECODABLE as error:
        return Explanation(fields, b"", undecodable(error))
    except ApiError as error:
        return Explanation(fields, b"", error)


def undecodable(error: Exception) -> ApiError:
    """Describe one of the errors in `UNDECODABLE`."""
    if isinstance(error, RecursionError):
        return invalid("body is nested too deeply")
    is_json = isinstance(error, msgspec.ValidationError)
    return invalid(str(error) if is_json else f"body is not valid JSON: {error}")


def has_no_duplicates(text: bytes) -> bool:
    """Whether it is certain, without a walk through the names, that no name occurs twice in this object or in
    the objects that are its values.

    There are at least as many colons as names. If there are as many as different names, each occurs once.
    Colons in strings are told apart if nothing stands between a name and its colon.
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
    """What a value may hold: an object of these names, one of any names, an array, or an integer."""

    names: "dict[str, Outline | None] | None" = None
    each: "Outline | None" = None
    items: "Outline | None" = None
    is_integer: bool = False

    def is_told_by_patterns(self) -> bool:
        """Whether replaced characters make no two names equal, and no name is arbitrary."""
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
        # Names that begin with a dollar sign are the server's own.
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
    text: bytes, outline: Outline | None, fields: UnknownFields, *, may_have_duplicates: bool = False
) -> bytes:
    """Return the same compact JSON without unknown names, with each name once, and with integers that Python
    can read.

    With `may_have_duplicates`, duplicate names of this object are not reported.
    """
    if outline is None:
        return text
    if outline.is_integer:
        return _readable(text)
    if outline.items is not None:
        return _cleared_items(text, outline.items, fields)
    if text[:1] != b"{":
        return text
    members, known = _members(text), outline.names
    if known is not None:
        few = islice(members, _MAX_MEMBERS)
        fields.add_unknown((name for name in few if name not in known), known)
    if len(members) > _MAX_MEMBERS:
        raise _too_many_members()
    if not may_have_duplicates:
        _add_duplicates(text, members, fields)
    cleared = {
        name: Raw(_cleared(bytes(value), outline.each if known is None else known[name], fields))
        for name, value in members.items()
        if known is None or name in known
    }
    return _encode(cleared)


def _readable(number: bytes) -> bytes:
    if not _ENDLESS.fullmatch(number):
        return number
    return b"-" + _TOO_LARGE if number[:1] == b"-" else _TOO_LARGE


def _cleared_items(text: bytes, outline: Outline, fields: UnknownFields) -> bytes:
    if text[:1] != b"[":
        return text
    items = _items(text)
    if len(items) > MAX_BATCH_RECORDS:
        return text  # refused for their number, whatever they hold
    cleared = []
    for number, item in enumerate(items):
        # The search for duplicates takes longest. It ends early if items are many and there is a mistake.
        is_spared = number >= _FEW_ITEMS and bool(fields)
        cleared.append(_cleared(bytes(item), outline, fields, may_have_duplicates=is_spared))
    return b"[" + b",".join(cleared) + b"]"


def _add_duplicates(text: bytes, members: dict[str, Raw], fields: UnknownFields) -> None:
    # Brackets, names, values and the characters between them: this length leaves no room for duplicates.
    shortest = 1 + sum([len(name.encode()) + len(value) + 4 for name, value in members.items()])
    if members and len(text) != shortest:
        seen: set[str] = set()
        for number, name in enumerate(_names_in(text)):
            if name in seen:
                fields.add_duplicate(name)
            seen.add(name)
            if number == _MAX_MEMBERS:
                raise _too_many_members()


def _too_many_members() -> ApiError:
    return invalid(f"an object has at most {_MAX_MEMBERS} names", {"max": _MAX_MEMBERS})


def _names_in(text: bytes) -> Iterator[str]:
    """Return the names of a compact object, each as often as it occurs; not those of objects inside it."""
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
