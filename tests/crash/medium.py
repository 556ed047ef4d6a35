"""What lies under a simulated disk: files, a shared page, directories, and what of them a crash may take.

Each keeps its content as running programs see it (the page cache) and the list of changes that no sync has
covered. A power loss takes those changes back and applies only what chance lets through.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SECTOR = 512
# States of a shared page since its last sync that a power loss may leave behind.
PAGE_STATES = 8


@dataclass(slots=True)
class Change:
    """One unsynced change of a file. A truncation has no data and ends at `position`."""

    position: int
    data: bytes | None
    size_before: int
    covered: bytes
    # Where a misdirected write really went.
    went_to: tuple[Node, int] | None = None


class Node:
    """A file without its name."""

    __slots__ = ("buffer", "changes", "patches", "size")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.size = 0
        self.changes: list[Change] = []
        # What the medium holds although the page cache says otherwise; seen after a power loss.
        self.patches: list[tuple[int, bytes]] = []

    def content(self) -> bytes:
        return bytes(self.buffer[: self.size])

    def clone(self) -> Node:
        copy = Node()
        copy.buffer, copy.size = bytearray(self.buffer[: self.size]), self.size
        copy.changes, copy.patches = list(self.changes), list(self.patches)
        return copy

    def put(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if end > len(self.buffer):
            # A new buffer: whoever has mapped the old one keeps it, as it was.
            grown = bytearray(max(end, 2 * len(self.buffer), 256))
            grown[: self.size] = self.buffer[: self.size]
            self.buffer = grown
        self.buffer[position:end] = data
        self.size = max(self.size, end)

    def cut(self, size: int) -> None:
        if size < self.size:
            self.buffer[size : self.size] = bytes(self.size - size)
        elif size > len(self.buffer):
            self.put(size - 1, b"\0")
        self.size = size

    def change(self, position: int, data: bytes, went_to: tuple[Node, int] | None = None) -> None:
        end = min(position + len(data), self.size)
        covered = bytes(self.buffer[position:end]) if position < self.size else b""
        if self.patches:
            covered = self._medium(position, covered)
        self.changes.append(Change(position, data, self.size, covered, went_to))
        self.put(position, data)

    def _medium(self, position: int, cached: bytes) -> bytes:
        """What really lies where a write goes. Written once more, it is dirty once more."""
        medium, end, kept = bytearray(cached), position + len(cached), []
        for at, old in self.patches:
            if at < position or at + len(old) > end:
                kept.append((at, old))
            else:
                medium[at - position : at - position + len(old)] = old
        self.patches = kept
        return bytes(medium)

    def change_size(self, size: int) -> None:
        self.changes.append(Change(size, None, self.size, bytes(self.buffer[size : self.size])))
        self.cut(size)

    def sync(self) -> None:
        for change in self.changes:
            if change.went_to is not None:
                self._misdirect(change, *change.went_to)
            elif change.data is not None:
                self._overwrite(change.position, change.position + len(change.data))
        self.changes.clear()

    def _overwrite(self, start: int, stop: int) -> None:
        """What reaches the medium in its proper place takes the place of whatever had strayed there."""
        kept = []
        for at, data in self.patches:
            kept += [(at, data[: max(start - at, 0)]), (max(at, stop), data[max(stop - at, 0) :])]
        self.patches = [(at, data) for at, data in kept if data]

    def _misdirect(self, change: Change, target: Node, at: int) -> None:
        assert change.data is not None
        self.patches.append((change.position, change.covered.ljust(len(change.data), b"\0")))
        target.patches.append((at, change.data))

    def lose_dirty(self, rng: random.Random) -> None:
        """A failed sync: the kernel marks the pages clean, written or not, and will not try again."""
        for change in self.changes:
            if change.data is not None and rng.random() < 0.5:
                self.patches.append((change.position, change.covered.ljust(len(change.data), b"\0")))
        self.changes.clear()

    def lose_power(self, rng: random.Random) -> None:
        changes, self.changes = self.changes, []
        for change in reversed(changes):
            self._undo(change)
        for change, part in _survivors(changes, rng):
            if change.data is None:
                self.cut(change.position)
            else:
                for at, data in part:
                    self.put(change.position + at, data)
                    if change.went_to is not None:
                        change.went_to[0].patches.append((change.went_to[1] + at, data))

    def apply_patches(self) -> None:
        patches, self.patches = self.patches, []
        for position, data in patches:
            self.put(position, data[: max(self.size - position, 0)])

    def _undo(self, change: Change) -> None:
        if change.data is None:
            self.cut(change.size_before)
        self.put(change.position, change.covered)
        self.cut(change.size_before)


Pieces = list[tuple[int, bytes]]


def _survivors(changes: list[Change], rng: random.Random) -> list[tuple[Change, Pieces]]:
    """What of the unsynced changes reached the medium, as offsets into each and bytes."""
    luck = rng.random()
    if luck < 0.2 or not changes:
        return []
    whole = [(change, [(0, change.data or b"")]) for change in changes]
    if luck < 0.35:
        return whole
    if luck < 0.7:
        kept = whole[: rng.randrange(len(whole)) + 1]
        last = kept.pop()[0]
        return [*kept, (last, _torn(last.data or b"", rng))]
    return [
        (change, _torn(change.data or b"", rng) if rng.random() < 0.3 else parts)
        for change, parts in whole
        if rng.random() < 0.6
    ]


def _torn(data: bytes, rng: random.Random) -> Pieces:
    at = rng.randrange(len(data) + 1)
    luck = rng.random()
    if luck < 0.6:
        return [(0, data[:at])]
    if luck < 0.8 or len(data) <= SECTOR:
        return [(at, data[at:])]
    return [(at, data[at : at + SECTOR]) for at in range(0, len(data), SECTOR) if rng.random() < 0.5]


class Page:
    """The node behind a shared page; its sector is written whole or not at all."""

    __slots__ = ("current", "durable", "states")

    def __init__(self, size: int) -> None:
        self.current = bytearray(size)
        self.durable = bytes(size)
        self.states: list[bytes] = []

    def clone(self) -> Page:
        copy = Page(0)
        copy.current, copy.durable, copy.states = bytearray(self.current), self.durable, list(self.states)
        return copy

    def content(self) -> bytes:
        return bytes(self.current)

    def note(self) -> None:
        self.states.append(bytes(self.current))
        del self.states[:-PAGE_STATES]

    def sync(self) -> None:
        self.durable = bytes(self.current)
        self.states.clear()

    def lose_power(self, rng: random.Random) -> None:
        # The kernel may have written the page on its own at any time since.
        self.durable = rng.choice([self.durable, *self.states, bytes(self.current)])
        self.current = bytearray(self.durable)
        self.states.clear()


@dataclass(slots=True)
class Entry:
    """One unsynced change of a directory: a name that appears, goes, or (with a source) is renamed."""

    name: str
    node: Node | Page | None
    source: str | None = None


class Directory:
    __slots__ = ("changes", "durable", "is_durable", "names")

    def __init__(self, *, is_durable: bool) -> None:
        self.names: dict[str, Node | Page] = {}
        self.durable: dict[str, Node | Page] = {}
        self.changes: list[Entry] = []
        self.is_durable = is_durable

    def change(self, entry: Entry) -> None:
        self.changes.append(entry)
        _apply(self.names, entry)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def lose_power(self, rng: random.Random) -> None:
        changes, luck = self.changes, rng.random()
        if luck < 0.25:
            kept = []
        elif luck < 0.5:
            kept = changes[: rng.randrange(len(changes) + 1)]
        else:
            kept = [entry for entry in changes if rng.random() < 0.5]
        for entry in kept:
            _apply(self.durable, entry)
        self.changes = []
        self.names = dict(self.durable)


def _apply(names: dict[str, Node | Page], entry: Entry) -> None:
    if entry.source is not None:
        names.pop(entry.source, None)
    if entry.node is None:
        names.pop(entry.name, None)
    else:
        names[entry.name] = entry.node
