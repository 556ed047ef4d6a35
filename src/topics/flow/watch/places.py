"""Where a stream stands in each of its topics: a seq, and the life of the topic in which it means something.

The id of a frame says the same in one opaque word. Of a topic in a later life it has the epoch:

    {"lantern":44,"tides":7}        {"lantern":44,"tides":7,"~":{"tides":12}}

Seqs of different lives are never compared.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from topics.values import NO_LIFE, U64_MAX

# No topic can have this name.
_LATER = "~"
_id = msgspec.json.Decoder(dict[str, int | dict[str, int]])

Seqs = dict[str, int]
Epochs = dict[str, int]


class Places:
    """One for every topic of a stream, or of a session that has none at the time."""

    __slots__ = ("epochs", "later", "seqs")

    def __init__(self) -> None:
        self.seqs: Seqs = {}
        self.epochs: Epochs = {}
        # The epochs of those that are not known to be in a first life.
        self.later: Epochs = {}

    def put(self, name: str, seq: int, epoch: int, *, first_life: bool) -> None:
        self.seqs[name] = seq
        self.enter(name, epoch, first_life=first_life)

    def enter(self, name: str, epoch: int, *, first_life: bool) -> None:
        """The seq of this topic means something in this life of it from now on."""
        self.epochs[name] = epoch
        if first_life:
            self.later.pop(name, None)
        else:
            self.later[name] = epoch

    def forget(self, name: str) -> None:
        del self.seqs[name], self.epochs[name]
        self.later.pop(name, None)

    def event_id(self) -> bytes:
        return encode_id(self.seqs, self.later)

    def rewound(self, last_event_id: bytes, present: Callable[[str], int | None]) -> "Places":
        """The same, or lower where a client knows that it got less. It never gets ahead by that.

        Where the client speaks of another life, it starts over in the present one; `present` knows its epoch.
        """
        places = Places()
        places.seqs, places.epochs, places.later = dict(self.seqs), dict(self.epochs), dict(self.later)
        seqs, later = decode_id(last_event_id) or ({}, {})
        for name in seqs.keys() & self.seqs.keys():
            epoch, known = later.get(name), self.epochs[name]
            if epoch == known or (epoch is None and name not in self.later):
                places.seqs[name] = min(seqs[name], self.seqs[name])
            else:
                former = [one for one in (epoch, known) if one is not None and one != present(name)]
                places.put(name, 0, former[0] if former else NO_LIFE, first_life=False)
        return places


def encode_id(seqs: Seqs, later: Epochs) -> bytes:
    """The position in every topic as one opaque word. `later`: the epochs of those in a later life."""
    full: dict[str, Any] = {**seqs, _LATER: later} if later else seqs
    return base64.urlsafe_b64encode(msgspec.json.encode(full)).rstrip(b"=")


def decode_id(text: bytes) -> tuple[Seqs, Epochs] | None:
    """None for anything that `encode_id` could not have made."""
    text = text.strip().rstrip(b"=")
    try:
        found = _id.decode(base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    later = found.pop(_LATER, {})
    seqs = {name: seq for name, seq in found.items() if isinstance(seq, int)}
    if not isinstance(later, dict) or len(seqs) < len(found):
        return None
    if any(not 0 <= number <= U64_MAX for numbers in (seqs, later) for number in numbers.values()):
        return None
    return seqs, later
