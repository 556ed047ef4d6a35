"""Boundaries of the log: what just fits is taken, and nothing goes a record or a millisecond too soon."""

from tests.mutation.runner import Mutation

_APPEND = "tests/log/write/test_append.py"
_BATCH = "tests/log/write/test_batch.py"
_LEDGER = "tests/log/remove/test_ledger.py"
_PAGE = "tests/log/read/test_page.py"
_RETENTION = "tests/log/remove/test_retention.py"
_TOMBSTONE = "tests/log/read/test_tombstone.py"
_TOPIC = "tests/log/test_topic.py"
_SEALER = "tests/log/seal/test_sealer.py"
_CHECKPOINT = "tests/log/seal/test_checkpoint.py"
_QUEUE = "tests/log/write/test_commit_queue.py"

MUTATIONS = (
    Mutation(
        "expire-a-run-a-millisecond-early",
        "A record whose age is exactly the TTL stays.",
        "log/remove/retention.py",
        "        if run.last_ts < oldest_allowed:\n",
        "        if run.last_ts <= oldest_allowed:\n",
        (_RETENTION,),
    ),
    Mutation(
        "expire-a-record-a-millisecond-early",
        "A record whose age is exactly the TTL stays, in the middle of a run, too.",
        "log/remove/retention.py",
        "np.searchsorted(ts, oldest_allowed)) - 1",
        'np.searchsorted(ts, oldest_allowed, side="right")) - 1',
        (_RETENTION,),
    ),
    Mutation(
        "evict-a-run-that-need-not-go",
        "A cap in bytes takes no more records than it has to.",
        "log/remove/retention.py",
        "        if run.live_bytes < excess:\n",
        "        if run.live_bytes <= excess:\n",
        (_RETENTION,),
    ),
    Mutation(
        "evict-one-too-many-of-a-run",
        "A cap in bytes takes no more records of a run than it has to.",
        "log/remove/retention.py",
        "np.searchsorted(freed, excess))",
        'np.searchsorted(freed, excess, side="right"))',
        (_RETENTION,),
    ),
    Mutation(
        "keep-a-line-but-not-what-it-took",
        "What a line had taken does not come back with its last record.",
        "log/remove/retention.py",
        "        if line >= topic.floor:\n",
        "        if line > topic.floor:\n",
        (_RETENTION,),
    ),
    Mutation(
        "foretell-the-lesser-loss",
        "A config that is tried out says how many records it would take, whichever of its bounds takes more.",
        "log/remove/retention.py",
        "    return max(_live_upto(topic, older),",
        "    return min(_live_upto(topic, older),",
        (_RETENTION,),
    ),
    Mutation(
        "foretell-the-lesser-age",
        "A config that is tried out counts what its bytes take and what its age takes.",
        "log/remove/retention.py",
        "        older = max(older, _bytes",
        "        older = min(older, _bytes",
        (_RETENTION,),
    ),
    Mutation(
        "read-past-a-hole",
        "A hole right behind a cursor is announced before what follows it.",
        "log/read/tombstone.py",
        "hole.first <= position + 1",
        "hole.first < position + 1",
        (_TOMBSTONE,),
    ),
    Mutation(
        "call-a-reader-at-the-head-lost",
        "A cursor at the head is of this life.",
        "log/read/tombstone.py",
        "    if from_seq > head or",
        "    if from_seq >= head or",
        (_TOMBSTONE,),
    ),
    Mutation(
        "announce-what-was-read",
        "A reader that has got the last record that was lost is told of no loss.",
        "log/read/tombstone.py",
        "topic.seq_base) < topic.loss_line",
        "topic.seq_base) <= topic.loss_line",
        (_TOMBSTONE,),
    ),
    Mutation(
        "forget-the-ttl-in-a-reason",
        "A gap whose last record went by age says so.",
        "log/read/tombstone.py",
        "topic.ttl_hi >= gap_from",
        "topic.ttl_hi > gap_from",
        (_TOMBSTONE,),
    ),
    Mutation(
        "forget-the-cap-in-a-reason",
        "A gap whose last record went by the cap says so.",
        "log/read/tombstone.py",
        "topic.cap_hi >= gap_from",
        "topic.cap_hi > gap_from",
        (_TOMBSTONE,),
    ),
    Mutation(
        "forget-the-trim-in-a-reason",
        "A gap whose last record was lost at the source says so.",
        "log/read/tombstone.py",
        "topic.trim_hi >= gap_from",
        "topic.trim_hi > gap_from",
        (_TOMBSTONE,),
    ),
    Mutation(
        "blame-the-source-for-a-loss",
        "Of a gap that has a loss of its own in it, the source is not blamed.",
        "log/read/tombstone.py",
        "topic.lost_hi < gap_from",
        "topic.lost_hi <= gap_from",
        (_TOMBSTONE,),
    ),
    Mutation(
        "deliver-nothing-of-an-oversized-record",
        "A record larger than a page is delivered alone.",
        "log/read/page.py",
        "fitting = max(fitting, 1)",
        "fitting = min(fitting, 1)",
        (_PAGE,),
    ),
    Mutation(
        "let-time-run-back",
        "`$ts` never falls.",
        "log/write/append.py",
        "ts = now if now > topic.last_ts else topic.last_ts",
        "ts = now",
        (_APPEND,),
    ),
    Mutation(
        "refuse-what-just-fits-a-topic",
        "A topic that rejects takes as many records as its cap says.",
        "log/write/append.py",
        "    size += topic.live_bytes + topic.pending_bytes\n"
        "    if (config.cap_records and count > config.cap_records)",
        "    size += topic.live_bytes + topic.pending_bytes\n"
        "    if (config.cap_records and count >= config.cap_records)",
        (_APPEND,),
    ),
    Mutation(
        "leave-writes-under-way-out-of-a-cap",
        "A topic that rejects counts writes that are under way.",
        "log/write/append.py",
        "    count += topic.live_count + topic.pending_count\n"
        "    size += topic.live_bytes + topic.pending_bytes\n",
        "    count += topic.live_count\n    size += topic.live_bytes\n",
        (_APPEND,),
    ),
    Mutation(
        "refuse-what-just-fits-the-server",
        "`max_total_bytes` is what fits, not the first that does not.",
        "log/write/append.py",
        "        if core.totals.bytes + core.totals.pending_bytes + size > limit:\n            raise",
        "        if core.totals.bytes + core.totals.pending_bytes + size >= limit:\n            raise",
        (_APPEND,),
    ),
    Mutation(
        "refuse-a-full-batch",
        "As many records fit in one write as the limit says.",
        "log/write/append_request.py",
        " and len(records) > MAX_BATCH_RECORDS:\n",
        " and len(records) >= MAX_BATCH_RECORDS:\n",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-largest-record",
        "A record may be as large as the limit says.",
        "log/write/append_request.py",
        "max(data_lens) > MAX_RECORD_BYTES)",
        "max(data_lens) >= MAX_RECORD_BYTES)",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-largest-record-with-meta",
        "Data and meta together may be as large as the limit says.",
        "log/write/append_request.py",
        "_check_meta(record.meta, index) > MAX_RECORD_BYTES",
        "_check_meta(record.meta, index) >= MAX_RECORD_BYTES",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-longest-tag",
        "A tag may be as long as the limit says.",
        "log/write/append_request.py",
        "len(tag.encode()) > MAX_TAG_BYTES",
        "len(tag.encode()) >= MAX_TAG_BYTES",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-longest-node",
        "A node may be as long as the limit says.",
        "log/write/append_request.py",
        "len(node.encode()) > MAX_NODE_BYTES",
        "len(node.encode()) >= MAX_NODE_BYTES",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-largest-meta",
        "Meta may be as large as the limit says.",
        "log/write/append_request.py",
        "    if size > MAX_META_BYTES:\n",
        "    if size >= MAX_META_BYTES:\n",
        (_BATCH,),
    ),
    Mutation(
        "refuse-the-last-key-of-meta",
        "Meta may have as many keys as the limit says.",
        "log/write/append_request.py",
        "count > MAX_META_KEYS",
        "count >= MAX_META_KEYS",
        (_BATCH,),
    ),
    Mutation(
        "join-ranges-that-do-not-touch",
        "Ranges in the account of a topic are joined only where they touch.",
        "log/remove/ledger.py",
        "self.kinds[-1] == kind and self.lasts[-1] + 1 == first",
        "self.kinds[-1] == kind",
        (_LEDGER,),
    ),
    Mutation(
        "stumble-over-the-end-of-the-account",
        "A seq above all that is gone has no reason to be.",
        "log/remove/ledger.py",
        "at < len(self.kinds) and",
        "at <= len(self.kinds) and",
        (_LEDGER,),
    ),
    Mutation(
        "pass-over-the-first-run",
        "A seq in the first run of a topic is found.",
        "log/topic.py",
        "if index >= 0 and self.runs[index].last >= seq",
        "if index > 0 and self.runs[index].last >= seq",
        (_TOPIC,),
    ),
    Mutation(
        "pass-over-the-last-of-a-run",
        "The last seq of a run is found.",
        "log/topic.py",
        "self.runs[index].last >= seq",
        "self.runs[index].last > seq",
        (_TOPIC,),
    ),
    Mutation(
        "begin-at-a-deleted-record",
        "The first live seq is not a deleted one, at the end of a run either.",
        "log/topic.py",
        "                if found < stop:\n                    return run.base + found\n",
        "                if found <= stop:\n                    return run.base + found\n",
        (_TOPIC,),
    ),
    Mutation(
        "seal-a-run-late",
        "A run with as many records as fit is sealed.",
        "log/topic.py",
        "            if run.count >= unsealed.max_events or",
        "            if run.count > unsealed.max_events or",
        (_TOPIC,),
    ),
    Mutation(
        "refuse-a-write-that-fills-a-topic",
        "One write may be as large as the cap of a topic that rejects.",
        "log/write/append.py",
        "    if (config.cap_records and count > config.cap_records) or "
        "(config.cap_bytes and size > config.cap_bytes):\n"
        '        raise ApiError("record_too_large"',
        "    if (config.cap_records and count >= config.cap_records) or "
        "(config.cap_bytes and size >= config.cap_bytes):\n"
        '        raise ApiError("record_too_large"',
        (_APPEND,),
    ),
    Mutation(
        "refuse-what-just-fits-the-queue",
        "As many changes may wait as the limit says.",
        "log/write/commit_queue.py",
        "            raise self.refusal.anew()\n"
        "        if len(self.waiting) + len(self._held) + ops > MAX_WAITING_OPS:\n"
        "            raise self._crowded()\n\n    def require_room",
        "            raise self.refusal.anew()\n"
        "        if len(self.waiting) + len(self._held) + ops >= MAX_WAITING_OPS:\n"
        "            raise self._crowded()\n\n    def require_room",
        (_QUEUE,),
    ),
    Mutation(
        "keep-damage-to-oneself",
        "What a reader found damaged is in a snapshot soon.",
        "log/seal/checkpoint.py",
        "        if engine.totals.damage != self._known_damage:\n",
        "        if False:\n",
        (_CHECKPOINT,),
    ),
    Mutation(
        "take-snapshots-late",
        "What was written is in a snapshot when it is as old as `seal_age_ms` says.",
        "log/seal/checkpoint.py",
        "waited_ms >= engine.settings.seal_age_ms",
        "waited_ms > engine.settings.seal_age_ms",
        (_CHECKPOINT,),
    ),
    Mutation(
        "forget-deletions-while-sealing",
        "A record that is deleted while its file is written stays deleted.",
        "log/seal/sealer.py",
        "np.frombuffer(known, np.uint8) != 0] = 0\n",
        "np.frombuffer(known, np.uint8) == 0] = 0\n",
        (_SEALER,),
    ),
    Mutation(
        "forget-ephemeral-records-behind",
        "What ephemeral records have pushed out of a cap stays gone when a restart has forgotten those.",
        "log/topic.py",
        " |= bool(self.runs) and self.runs[-1].ephemeral\n",
        " |= bool(self.runs) and self.bases[0] < run.base and self.runs[-1].ephemeral\n",
        ("tests/log/seal/test_adopted_files.py",),
    ),
)
