"""Bytes on disk. Nothing here knows what a tombstone is.

    frame ──▶ journal ──▶ (sealed in the background) ──▶ segment
                 │                                          │
                 └────────── snapshot: where to start ──────┘
                                    │
                    journal reader: frames back, in order, damage announced

A process has the directories to itself (`home`): they are locked, and say of which log they are (`identity`).

All disk access goes through `filesystem.Filesystem`, so that a test can put a simulated disk under it.
File names are numbers; a topic's name never becomes a path. What other rooms need, they import from here.
"""

from topics.codec.row_text import DATA_KEY, END, HEAD, META_KEY, PLAIN, TAG, around_data, node_of
from topics.storage.ahead import Ahead
from topics.storage.cold_choice import ForeignDirectory, SealedRun, SealedRuns, choose_cold_dir
from topics.storage.cold_files import ColdFiles
from topics.storage.columns import (
    I64,
    NO_NAMES,
    U8,
    U32,
    U64,
    CodedNames,
    Columns,
    Records,
    join_records,
    total_at,
)
from topics.storage.directories import LOCK, Directories, require_format, sweep_segments
from topics.storage.fileheader import FILE_HEADER_BYTES, FORMAT, ForeignFile, OtherFormat
from topics.storage.filesystem import (
    NO_LOCK,
    TEMPORARY,
    File,
    Filesystem,
    LockHeld,
    Room,
    UntouchedDisk,
    is_full,
    numbered_files,
    read_file,
    unfinished_files,
    write_file_atomically,
)
from topics.storage.frame import (
    CREATIONS,
    DIGEST_BYTES,
    HEADER_BYTES,
    Frame,
    FrameDraft,
    Keys,
    Kind,
    Payload,
    decode_keys,
    encode_keys,
)
from topics.storage.frame_stretch import FrameStretch
from topics.storage.home import Hold, Home
from topics.storage.identity import OWNER, Identity, read_identity, write_identity
from topics.storage.journal import (
    ROTATE_BYTES,
    Journal,
    JournalFile,
    PendingWrite,
    SyncTicket,
    decode_file_header,
    void_frames,
)
from topics.storage.journal_reader import PROOF, PROOF_MAGIC, QUARANTINE, Damage, JournalReader
from topics.storage.kernel_syncs import KernelSyncs
from topics.storage.reserve import BLOCK_BYTES, Reserve, enough_bytes
from topics.storage.segment import (
    DEAD,
    LIVE,
    SUFFIX,
    RunEntry,
    Segment,
    SegmentDamaged,
    SegmentWriter,
    renumber,
)
from topics.storage.snapshot import SnapshotStore
from topics.storage.witness import Testimony, Witness
