"""What the accelerator offers, by the names of its C files; `accelerator` says how it is used."""

from typing import Any

LIMITS: tuple[int, int, int, int, int]
SOURCE: str

class Records:
    """The records of a write, checked."""

    count: int
    # What data and meta count for.
    size: int
    has_tags: bool
    has_nodes: bool
    has_metas: bool

    def payload(self, first_seq: int, ts: int, /) -> tuple[bytes | bytearray, int, bytes, int]:
        """Of an Append frame; the length of its rows; where each ends, as u32; and the frame's flags."""

    def data_lens(self) -> bytes: ...
    def meta_lens(self) -> bytes: ...
    def tags(self) -> list[str | None]: ...
    def nodes(self) -> list[str | None]: ...
    def give_node(self, node: str, /) -> bool:
        """To each that has none; False, and nothing is changed, if that is for others to do."""

class Together:
    """Small writes to many topics, put behind their records; `together.py` says what that means."""

    def __init__(
        self,
        types: tuple[type, ...],
        alone: tuple[Any, ...],
        by_name: dict[str, Any],
        array_type: type,
        judge: Any,
        digest: Any,
        most_seq: int,
        record_bytes: int,
        header_bytes: int,
        /,
    ) -> None: ...
    def append(
        self,
        wanted: list[Any],
        held: set[Any],
        touched: set[Any],
        now: int,
        journal: Any,
        unsynced: Any,
        synced: Any,
        /,
    ) -> tuple[list[int], list[Any], bool]:
        """The indexes of what is left; topics to be seen to; and whether there are too many keys."""

    def commit(
        self,
        wanted: list[Any],
        held: set[Any],
        touched: set[Any],
        now: int,
        journal: Any,
        unsynced: Any,
        synced: Any,
        /,
    ) -> tuple[list[int], list[Any], bool, float, BaseException | None]:
        """The same, how many milliseconds the journal took, and why it has not taken them."""

    def publish(self, shares: list[Any], /) -> tuple[list[Any], list[Any], list[Any]] | None:
        """Shares of topics that a limit has come to, topics with listeners, keys that somebody waits for."""

class Places:
    """Where each idempotency key is remembered: a dictionary of numbers of 64 bits, in half of its memory."""

    def __len__(self) -> int: ...
    def __contains__(self, place: int, /) -> bool: ...
    def __setitem__(self, place: int, chunk: Any, /) -> None: ...
    def __delitem__(self, place: int, /) -> None: ...
    def get(self, place: int, /) -> Any: ...
    def keys(self) -> list[int]: ...

def plain_frame(
    kind: int,
    keys: bytes,
    bodies: list[bytes],
    topic_id: int,
    first_seq: int,
    ts: int,
    ahead_ms: int,
    synced: int,
    offset: int,
    digest: Any,
    /,
) -> tuple[bytes, int, int, bytes, int] | None:
    """The frame of writes of one plain record each; None if one of them is anything else."""

def cut(body: bytes, start: int, stop: int, /) -> Records | None:
    """The records of the JSON array between these two; None if any of them is unusual, or wrong."""

def gather(bodies: list[bytes], /) -> tuple[Records | None, list[int] | None, list[int]]:
    """The records of several writes; how many each has, or None for one each; and which are unusual."""

def cells(texts: Any, offsets: Any, /) -> Records | None:
    """Plain records of an Arrow column; None unless each cell is one compact value."""

def is_json(value: Any, /) -> bool:
    """Whether it is JSON beyond doubt: of the plain types themselves, its numbers finite, its keys text."""

def encode(values: list[str | None], codes: dict[str, int], names: list[str], /) -> bytes:
    """The number of each name, in as few bytes as the highest takes; new ones are added. 0 is none."""

def post(tags: list[str | None], offset: int, postings: dict[str, Any], fresh: list[str], /) -> None:
    """Note where each tag occurs."""

def page(before: bytes, rows: bytes, after: bytes, /) -> bytes:
    """One behind the other; the newlines between rows become commas, and the last one is left out."""

def frames(window: bytes, topic_id: int, first_seq: int, position: int, /) -> bytes:
    """Where small plain frames of this topic begin, one behind the other, and where the last ends: int64s."""

def frame_parts(window: bytes, starts: Any, /) -> tuple[bytes, bytes]:
    """The rows of all these frames, and the lengths of their data."""

def seqs(first: int, count: int, /) -> bytes:
    """So many seqs as a JSON array."""

def answers(before: bytes, first: int, count: int, after: bytes, /) -> list[bytes]:
    """What each of so many writers of one record is told."""

def ends_behind(ends: bytes, offset: int, /) -> bytes:
    """Where rows end, each so much further on."""

def key_of_head(head: bytes, /) -> tuple[bytes, bytes] | None:
    """The head of a request without the line of its idempotency key, and that key."""

def key_digest(salt: bytes, key: bytes, /) -> bytes:
    """What is remembered of an idempotency key."""

def alive(
    rows: Any, ends: Any, borders: Any, marks: Any, start: int, stop: int, room: int, budget: int, /
) -> tuple[bytes, int] | None:
    """So many rows from `start` on that are not marked, and how far they go; None if there are not so many,
    or they exceed the budget. With borders, the ends are packed."""

class Sockets:
    """Sockets of connections, read and answered many at a time; `http/wire/crowd.py` says how."""

    def __init__(self, connections: type, known: type, topics: type, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def add(self, connection: Any, /) -> None: ...
    def remove(self, connection: Any, /) -> None: ...
    def receive(
        self, heads: dict[bytes, Any] | None, /
    ) -> tuple[list[tuple[Any, list[Any]]], list[tuple[Any, bytes]], list[Any], list[Any]]:
        """Whose requests travel, by convoy; what others have sent; whose sockets the loop should read; whose
        are broken."""

    def answer(self, asking: list[Any], bodies: list[bytes], head: bytes, /) -> list[int]:
        """Those that are not answered here, by their index."""

    def tell(
        self, shares: list[Any], head: bytes, total_ms: float, wal_ms: float, fsync_ms: float, /
    ) -> tuple[int, list[Any], list[bytes]]:
        """How many were answered; those who were not, and with what they should be."""
