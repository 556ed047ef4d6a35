"""One topic's truth: what was written, what is still live, and what a reader must be told.

    write    body ─▶ batch ─▶ append (admit, assign seqs, render once) ─▶ commit queue ─▶ journal ─▶ publish
    read     cursor ─▶ tombstone (a gap, if there is one) ─▶ page (walk over runs) ─▶ rows as rendered
    remove   deletes, caps and age ─▶ floor, loss line, ledger
    seal     runs ─▶ segments ─▶ snapshot ─▶ journal and files that no snapshot needs are let go
    recover  snapshot ─▶ reload (journal below it) ─▶ replay (journal above it) ─▶ holes for what is gone

A `Topic` stands where its `watermarks` say, and its records lie in `Run`s; both make their moves themselves.
All topics, the journal and the time are in the `core`, which operations take; `Engine` is what everything
above the log sees. A single thread owns it. Nothing here locks, and only `write.commit_loop` knows the event
loop. What other rooms need of this one, they import from here.
"""

from topics.log.engine import Engine
from topics.log.extension import Extension, Layer
from topics.log.lifecycle import (
    create_topic,
    drop_topic,
    preview_topic,
    put_topic,
    refuse_unless_empty,
    require_room,
)
from topics.log.read.audit import (
    MAX_BUCKETS,
    Steps,
    bucket_steps,
    exact,
    exactly,
    missing_ranges,
    range_steps,
    whole,
    why_missing,
)
from topics.log.read.filter import Choice, TagMatch, last_steps, parse_match, survivors
from topics.log.read.pace import time_left, written_ms
from topics.log.read.page import Page, read_page
from topics.log.read.render import STORED, Shape, few_records
from topics.log.read.tombstone import Tombstone, hole_reason, passed_over
from topics.log.recover.recovery import Recovery, RecoveryFailed
from topics.log.recover.reload import is_loaded, load_rows
from topics.log.recover.small_frames import rows_of
from topics.log.remove.deletion import (
    DeleteOutcome,
    Selector,
    apply_delete,
    delete_records,
    note_unfound,
    preview_delete,
    wanted_records,
)
from topics.log.remove.ledger import CAP, DELETED, KIND_NAMES, LOST, TRIM, TTL
from topics.log.remove.removal import enforce_caps, expire, lose_runs, settle_floor, surviving_damage
from topics.log.remove.search import DeleteQuery, Search, answer, matches_many
from topics.log.run import HotColumns, Run
from topics.log.seal.checkpoint import Checkpointer
from topics.log.seal.sealer import SegmentPlan
from topics.log.seal.segment_store import entry_of
from topics.log.seal.snapshot_state import RunState, SnapshotState, TopicState, decode
from topics.log.topic import Topic
from topics.log.write.append import Append, AppendOp, Judgement, admit_total, judge
from topics.log.write.commit_loop import CommitLoop
from topics.log.write.commit_queue import MAX_WAITING_OPS
from topics.log.write.group import Amount, Part, admit_group, append_group
from topics.log.write.idempotency import check_key, keys_kept_ms
from topics.log.write.operation import CallbackOp, Creation, Fail, Op
from topics.log.write.reservation import cover, extend_if_short
from topics.log.write.segment_import import (
    ImportFiles,
    ImportOp,
    ImportPart,
    begin_import,
    decode_import,
    finish_import,
)
