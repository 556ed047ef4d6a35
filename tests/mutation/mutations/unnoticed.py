"""Changes that once passed all tests: each of them was found by looking for what no test would notice."""

from tests.mutation.runner import Mutation

_RESTORE = "tests/keep/test_restore.py"
_ENGINE = "tests/log/test_engine.py"
_DIFF = "tests/http/routes/records/test_diff.py"

MUTATIONS = (
    Mutation(
        "wait-after-the-look",
        "A long-poll hears of everything that is written after it looked.",
        "http/routes/records/diff.py",
        "        self._topic.listeners.append(self._wake)\n        loop = asyncio.get_running_loop()\n",
        "        loop = asyncio.get_running_loop()\n"
        "        loop.call_soon(self._topic.listeners.append, self._wake)\n",
        (f"{_DIFF}::test_a_long_poll_hears_of_what_is_written_right_behind_its_look",),
    ),
    Mutation(
        "forward-what-is-not-committed",
        "A router forwards what is visible, and nothing that may still fail.",
        "flow/routers/registry.py",
        "            upto = source.head if is_over is None else ahead\n",
        "            upto = source.assigned\n",
        ("tests/flow/routers/test_registry.py::test_only_what_is_visible_is_forwarded",),
    ),
    Mutation(
        "leave-out-the-last-millisecond",
        "A log restored to a moment has everything of that millisecond.",
        "keep/restore.py",
        "over is None and item.clock_ms > at_ms:\n",
        "over is None and item.clock_ms >= at_ms:\n",
        (f"{_RESTORE}::test_a_moment_ends_with_its_millisecond",),
    ),
    Mutation(
        "pass-over-the-snapshot-of-a-moment",
        "A snapshot that was made in the millisecond to restore is one to start from.",
        "keep/restore.py",
        "            if state.clock_ms > at_ms and",
        "            if state.clock_ms >= at_ms and",
        (f"{_RESTORE}::test_a_moment_ends_with_its_millisecond",),
    ),
    Mutation(
        "stop-at-the-first-of-equal-times",
        "Of records of one millisecond, a restore to it keeps all.",
        "keep/restore.py",
        'at_ms, side="right")',
        'at_ms, side="left")',
        (f"{_RESTORE}::test_the_last_of_equal_times_counts",),
    ),
    Mutation(
        "use-epochs-again",
        "A restored topic has an epoch that none has had before, whatever the clock says.",
        "keep/restore.py",
        "max(int(time.time() * IDS_PER_SECOND), engine.next_topic_id)\n",
        "int(time.time() * IDS_PER_SECOND)\n",
        (f"{_RESTORE}::test_restored_epochs_are_none_of_the_old_ones_whatever_the_clock_says",),
    ),
    Mutation(
        "let-the-hold-of-a-backup-end",
        "Files that a backup copies are held for as long as it takes.",
        "cli/backup.py",
        '                client.renew_hold(hold["hold"])\n',
        "",
        ("tests/cli/test_backup.py::test_files_are_held_for_as_long_as_it_takes",),
    ),
    Mutation(
        "copy-without-a-word",
        "A backup gives notice with every piece that it copies.",
        "keep/backup.py",
        "        self._steps.advance(size)\n        self._source.keep()\n",
        "        self._steps.advance(size)\n",
        ("tests/keep/test_backup.py::test_the_source_is_told_of_every_piece",),
    ),
    Mutation(
        "leave-writes-under-way-out-of-the-quota",
        "`max_total_bytes` counts writes that are still under way.",
        "log/write/append.py",
        "    if limit and core.totals.bytes + core.totals.pending_bytes + size > limit:\n"
        "        core.expire_all(now)\n"
        "        if core.totals.bytes + core.totals.pending_bytes + size > limit:\n",
        "    if limit and core.totals.bytes + size > limit:\n"
        "        core.expire_all(now)\n"
        "        if core.totals.bytes + size > limit:\n",
        ("tests/log/write/test_append.py::test_writes_under_way_count_in_the_quota_of_the_server",),
    ),
    Mutation(
        "close-a-file-without-heads",
        "A journal file that is closed tells how far each topic had come in it, whatever is damaged there.",
        "log/engine.py",
        "        heads = sorted((topic.id, topic.assigned) for topic in touched)\n",
        "        heads: list[tuple[int, int]] = []\n",
        (f"{_ENGINE}::test_a_closed_journal_file_ends_with_the_heads_of_what_was_written_in_it",),
    ),
    Mutation(
        "prefer-the-cold-copy",
        "While a segment is in both tiers, the first one counts.",
        "log/seal/segment_store.py",
        "self.cold_files.numbers().difference(self._hot_numbers())",
        "self.cold_files.numbers()",
        ("tests/flow/test_tiers.py::test_a_copy_that_was_not_switched_to_is_not_read",),
    ),
    Mutation(
        "drop-a-topic-that-owes",
        "A topic that is deleted has forwarded all that was written to it.",
        "http/routes/topics.py",
        "            self._service.node.routers.pull_from(topic)\n",
        "            pass\n",
        (f"{_DIFF}::test_a_topic_that_goes_has_forwarded_all_it_had",),
    ),
)
