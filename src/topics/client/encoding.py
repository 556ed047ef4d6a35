"""Encodes and decodes data: plain JSON, dataclasses, msgspec structs and pydantic models.

Values that JSON cannot represent raise before anything is sent: otherwise NaN would become null, and a set
a list.
"""

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, Generic, TypeVar, cast

import msgspec

from topics.client.errors import InvalidData

T = TypeVar("T")
_PLAIN = frozenset((str, int, bool, type(None)))
_encode = msgspec.json.Encoder().encode


def check_json(value: Any) -> None:
    """Raise `TypeError` or `ValueError` on a value that JSON cannot represent."""
    kind = type(value)
    if kind is dict:
        for key, inner in value.items():
            if type(inner) not in _PLAIN or type(key) is not str:
                _check_key(key)
                check_json(inner)
    elif kind is list or kind is tuple:
        for inner in value:
            if type(inner) not in _PLAIN:
                check_json(inner)
    elif kind is float:
        if not isfinite(value):
            raise ValueError(f"{value} is no JSON")
    elif isinstance(value, str | int | float | dict | list | tuple):
        # A subclass, such as an enumeration or a counter, is checked as its base type.
        kinds: tuple[Any, ...] = (str, int, float, dict, list, tuple)
        inner = next(kind for kind in kinds if isinstance(value, kind))(value)
        if type(inner) not in _PLAIN:
            check_json(inner)
    elif value is not None:
        raise TypeError(f"{kind.__name__} is no JSON: give a dict, list, str, number, bool or None")


def _check_key(key: Any) -> None:
    """Allow strings, and numbers as `json` does; refuse other keys that the encoder would convert."""
    if not isinstance(key, str | int | float):
        raise TypeError(f"{type(key).__name__} is no key of a JSON object: give a str")
    if isinstance(key, float):
        check_json(float(key))


def encode_json(value: Any) -> bytes:
    try:
        if type(value) is dict:  # most records are flat, so each value needs no call
            for key, inner in value.items():
                if type(inner) not in _PLAIN or type(key) is not str:
                    check_json(value)
                    break
        elif type(value) not in _PLAIN:
            check_json(value)
        return _encode(value)
    except OverflowError:  # integers beyond 64 bits, which JSON has
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("data that contains itself, or is nested too deeply, is no JSON") from None


def decode_json(raw: bytes | msgspec.Raw) -> Any:
    """Decode JSON. Numbers that msgspec refuses, such as 1e400, are decoded by the standard library."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw))


class Codec(Generic[T]):
    """Encodes and decodes the data of a topic."""

    __slots__ = ("_write", "decode", "kind")

    def __init__(
        self, kind: Any, write: Callable[[Any], bytes], decode: Callable[[bytes | msgspec.Raw], T]
    ) -> None:
        self.kind = kind
        self._write = write
        self.decode = decode

    @property
    def is_plain(self) -> bool:
        return self.kind is None

    def encode(self, topic: str, value: T) -> bytes:
        if self.kind is None:
            return encode_json(value)
        try:
            raw = self._write(value)
            # A consumer with the same type must be able to read it.
            self.decode(raw)
        except (TypeError, ValueError) as error:
            raise InvalidData(topic, None, str(error)) from error
        return raw


def _keep(raw: bytes | msgspec.Raw) -> msgspec.Raw:
    return raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw)


# Data and meta stay the JSON that was written.
RAW: Codec[msgspec.Raw] = Codec(msgspec.Raw, bytes, _keep)


def codec_for(kind: "type[T] | None") -> Codec[T]:
    if kind is None:
        return cast("Codec[T]", Codec(None, encode_json, decode_json))
    if hasattr(kind, "model_validate_json"):
        return Codec(kind, *_pydantic(kind))
    decoder = msgspec.json.Decoder(kind)
    return Codec(kind, _encode_typed, decoder.decode)


def _encode_typed(value: Any) -> bytes:
    raw = _encode(value)
    if b"null" in raw:
        # The encoder writes NaN as null.
        check_json(msgspec.to_builtins(value))
    return raw


def _pydantic(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes | msgspec.Raw], Any]]:
    def write(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"{type(value).__name__} is no {kind.__name__}")
        raw: bytes = value.model_dump_json().encode()
        if b"null" in raw:
            check_json(value.model_dump(mode="json"))  # as above: NaN is said as null
        return raw

    return write, lambda raw: kind.model_validate_json(bytes(raw))
