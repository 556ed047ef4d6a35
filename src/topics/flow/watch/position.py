"""The position of a stream in each of its topics: a seq, and the incarnation of the topic that it belongs to.

The id of a frame is the position as one opaque word. It names the epoch of a topic in a later incarnation:

    {"lantern":44,"tides":7}        {"lantern":44,"tides":7,"~":{"tides":12}}

Seqs of different incarnations are never compared.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from topics.core import NO_LIFE, U64_MAX

# No topic can have this name.
_LATER = "~"
_id = msgspec.json.Decoder(dict[str, int | dict[str, int]])

Seqs = dict[str, int]
Epochs = dict[str, int]


class StreamPositions:
    """One position for every topic of a stream, or of a session that has no stream now."""

    __slots__ = ("epochs", "later", "seqs")

    def __init__(self) -> None:
        self.seqs: Seqs = {}
        self.epochs: Epochs = {}
        # The epochs of topics that are not known to be in their first incarnation.
        self.later: Epochs = {}

    def put(self, name: str, seq: int, epoch: int, *, first_life: bool) -> None:
        self.seqs[name] = seq
        self.enter(name, epoch, first_life=first_life)

    def enter(self, name: str, epoch: int, *, first_life: bool) -> None:
        """From now on, the seq of this topic belongs to this incarnation."""
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

    def rewound(self, last_event_id: bytes, present: Callable[[str], int | None]) -> "StreamPositions":
        """Return these positions, lowered to those that the client says it got. None of them rises.

        A client that names another incarnation starts over in the present one; `present` returns its epoch.
        """
        positions = StreamPositions()
        positions.seqs, positions.epochs, positions.later = (
            dict(self.seqs),
            dict(self.epochs),
            dict(self.later),
        )
        seqs, later = decode_id(last_event_id) or ({}, {})
        for name in seqs.keys() & self.seqs.keys():
            epoch, known = later.get(name), self.epochs[name]
            if epoch == known or (epoch is None and name not in self.later):
                positions.seqs[name] = min(seqs[name], self.seqs[name])
            else:
                former = [one for one in (epoch, known) if one is not None and one != present(name)]
                positions.put(name, 0, former[0] if former else NO_LIFE, first_life=False)
        return positions


def encode_id(seqs: Seqs, later: Epochs) -> bytes:
    """Return the position in every topic as one opaque word. `later`: epochs of later incarnations."""
    full: dict[str, Any] = {**seqs, _LATER: later} if later else seqs
    return base64.urlsafe_b64encode(msgspec.json.encode(full)).rstrip(b"=")


def decode_id(text: bytes) -> tuple[Seqs, Epochs] | None:
    """Return the positions of an id; None for anything that `encode_id` could not have made."""
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
