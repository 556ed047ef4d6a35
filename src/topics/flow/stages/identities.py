"""What has been committed: the last batches of every application, kept apart by owner.

An application is known by the id under which it commits, and an owner is the set of name prefixes of the key
with which it does so: two tenants that choose the same id never meet. Each batch is kept with a digest of its
rows and the answer it got, so that a repeat can be told from a conflict. For repeats whose parts are gone, or
some of them, there are digests of what they were called and of what was in each.

Memory is bounded by forgetting whole applications, the one unused longest first. Which ones go is part of
the frame of the commit that took their place: replay forgets the same ones, whatever was asked in between.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topics.log import Extension
from topics.storage import Frame, Kind

# A stream repeats its last one or two batches; what is older than all of these is refused, never taken on
# trust.
REMEMBERED_BATCHES = 100
MAX_APPLICATIONS = 10_000
# Of an owner. Enough for all the batches of all its applications, as long as most commits write few topics.
MAX_REMEMBERED_BYTES = 256 * 1024 * 1024
# Of a batch: how often work may be done anew, each time with other parts, until the first ones are forgotten.
REMEMBERED_REQUESTS = 4
# Each part of a commit has a digest of its own. Of all batches but the one committed last, they are kept only
# where there are so few: all that may be remembered still fits.
KEPT_PART_DIGESTS = 4
_PART_DIGEST_BYTES = 8
# What a batch takes besides its text, and an application besides its batches.
_BATCH_OVERHEAD = 128
_APPLICATION_OVERHEAD = 512


class StageRange(msgspec.Struct, array_like=True, gc=False):
    topic: str
    first_seq: int
    last_seq: int
    count: int
    # The life of the topic in which they were written.
    epoch: int


class Commit(msgspec.Struct, array_like=True, gc=False):
    """A batch of an application, and what became of it."""

    batch: int
    count: int
    digest: int
    ranges: list[StageRange]
    # For each of the last requests that got this answer: the digest of what it named, as in `names_digest`.
    names: list[int]
    # The digest (u64) of the rows of each part of the last request, in the order of their files; or nothing.
    parts: bytes

    def held(self, names: int, left: Sequence[int | None]) -> bool:
        """Tell whether the parts that are left were committed, as far as is known.

        `left`: the digest of each part, in the order of their files; None if it is gone.
        """
        if all(digest is None for digest in left):
            return True
        if names != self.names[-1] or len(self.parts) != len(left) * _PART_DIGEST_BYTES:
            return False
        committed = struct.unpack(f"<{len(left)}Q", self.parts)
        return all(digest in (None, known) for digest, known in zip(left, committed, strict=True))

    def repeated(self, names: int, parts: bytes) -> "Commit | None":
        """Return the commit with the parts of a repeat; None if there is nothing new to note."""
        if (names, parts) == (self.names[-1], self.parts):
            return None
        others = [each for each in self.names if each != names]
        kept = [*others, names][-REMEMBERED_REQUESTS:]
        return Commit(self.batch, self.count, self.digest, self.ranges, kept, parts)


def pack_digests(digests: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(digests)}Q", *digests)


class OwnedCommit(msgspec.Struct, array_like=True, gc=False):
    """A commit as the journal has it. `forgotten`: applications of the same owner that made room for it."""

    owner: str
    id: str
    commit: Commit
    forgotten: list[str]


_pack = msgspec.msgpack.encode
_commit = msgspec.msgpack.Decoder(Commit)
_owned = msgspec.msgpack.Decoder(OwnedCommit)
# By owner and by application.
_State = list[tuple[str, list[tuple[str, list[Commit]]]]]
_state = msgspec.msgpack.Decoder(_State)


@dataclass(slots=True)
class _Application:
    # Its newest batches, by number; encoded, because there may be a million of them and few are asked for.
    batches: dict[int, bytes] = field(default_factory=dict)
    size: int = _APPLICATION_OVERHEAD
    # The batch committed last, if it has the digests of more parts than are kept of others.
    with_many_parts: int | None = None

    def add(self, commit: Commit) -> int:
        """Returns by how much it has grown."""
        before = self.size
        self._drop_part_digests()
        self._put(commit)
        while len(self.batches) > REMEMBERED_BATCHES:
            self._drop(min(self.batches))
        return self.size - before

    def _put(self, commit: Commit) -> None:
        self._drop(commit.batch)
        encoded = self.batches[commit.batch] = _pack(commit)
        self.size += _BATCH_OVERHEAD + len(encoded)
        if len(commit.parts) > KEPT_PART_DIGESTS * _PART_DIGEST_BYTES:
            self.with_many_parts = commit.batch

    def _drop_part_digests(self) -> None:
        """Of the batch that was the last one so far. Whoever commits another has had its answer."""
        batch, self.with_many_parts = self.with_many_parts, None
        if batch is not None and batch in self.batches:
            self._put(msgspec.structs.replace(_commit.decode(self.batches[batch]), parts=b""))

    def _drop(self, batch: int) -> None:
        encoded = self.batches.pop(batch, None)
        if encoded is not None:
            self.size -= _BATCH_OVERHEAD + len(encoded)


class _Owner:
    """The applications of one owner, the one used last at the end."""

    def __init__(self) -> None:
        self.applications: OrderedDict[str, _Application] = OrderedDict()
        self.size = 0
        # Commits on their way to the disk: how large they are, and which applications make room for them.
        self.under_way: dict[str, tuple[int, list[str]]] = {}

    def find(self, name: str, batch: int) -> tuple[Commit | None, int | None]:
        """The batch, if it is known, and the oldest one that is."""
        application = self.applications.get(name)
        if application is None:
            return None, None
        self.applications.move_to_end(name)
        encoded = application.batches.get(batch)
        return None if encoded is None else _commit.decode(encoded), min(application.batches)

    def make_room(self, name: str, size: int, is_busy: Callable[[str], bool]) -> list[str]:
        """The applications that have to go before this commit is remembered."""
        known = self.applications
        leaving = {left for _, forgotten in self.under_way.values() for left in forgotten}
        coming = {*self.under_way, name}
        count = len(known) - len(leaving) + sum(each not in known or each in leaving for each in coming)
        held = self.size - sum(known[left].size for left in leaving)
        held += size + sum(each for each, _ in self.under_way.values())
        forgotten = []
        for candidate, application in known.items():
            if count <= MAX_APPLICATIONS and held <= MAX_REMEMBERED_BYTES:
                break
            if candidate not in leaving and candidate not in coming and not is_busy(candidate):
                forgotten.append(candidate)
                count -= 1
                held -= application.size
        self.under_way[name] = (size, forgotten)
        return forgotten

    def remember(self, name: str, commit: Commit) -> None:
        application = self.applications.get(name)
        if application is None:
            application = self.applications[name] = _Application()
            self.size += application.size
        self.size += application.add(commit)
        self.applications.move_to_end(name)

    def forget(self, name: str) -> None:
        application = self.applications.pop(name, None)
        if application is not None:
            self.size -= application.size

    def dump(self) -> list[tuple[str, msgspec.Raw]]:
        return [(name, _array(list(each.batches.values()))) for name, each in self.applications.items()]


class Identities(Extension):
    """The commits that are remembered, by owner."""

    name = "identities"
    kinds: tuple[int, ...] = (Kind.STAGE,)

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        # Applications that had to make room since the start.
        self.forgotten = 0

    @property
    def applications(self) -> int:
        return sum(len(owner.applications) for owner in self._owners.values())

    def find(self, owner: str, name: str, batch: int) -> tuple[Commit | None, int | None]:
        """The batch, if it is known, and the oldest known one of its application."""
        known = self._owners.get(owner)
        return (None, None) if known is None else known.find(name, batch)

    def prepare(self, owner: str, name: str, commit: Commit, is_busy: Callable[[str], bool]) -> OwnedCommit:
        """To be followed by `settle` or `withdraw`, in the order of the journal."""
        size = _APPLICATION_OVERHEAD + _BATCH_OVERHEAD + len(_pack(commit))
        space = self._owners.setdefault(owner, _Owner())
        return OwnedCommit(owner, name, commit, space.make_room(name, size, is_busy))

    def withdraw(self, prepared: OwnedCommit) -> None:
        self._owners[prepared.owner].under_way.pop(prepared.id, None)

    def settle(self, prepared: OwnedCommit) -> None:
        self.withdraw(prepared)
        self._remember(prepared)
        self.forgotten += len(prepared.forgotten)

    def _remember(self, owned: OwnedCommit) -> None:
        space = self._owners.setdefault(owned.owner, _Owner())
        for name in owned.forgotten:
            space.forget(name)
        space.remember(owned.id, owned.commit)

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        self._remember(_owned.decode(frame.payload))

    def dump(self) -> Any:
        return [(owner, space.dump()) for owner, space in self._owners.items()]

    def load(self, state: Any) -> None:
        for owner, applications in state_from_plain(state):
            space = self._owners.setdefault(owner, _Owner())
            for name, commits in applications:
                for commit in commits:
                    space.remember(name, commit)


def state_from_plain(state: Any) -> _State:
    return _state.decode(_pack(state))


def _array(items: list[bytes]) -> msgspec.Raw:
    """A MessagePack array of what is encoded already; there are at most a hundred."""
    head = bytes([0x90 + len(items)]) if len(items) < 16 else b"\xdc" + len(items).to_bytes(2, "big")
    return msgspec.Raw(head + b"".join(items))
