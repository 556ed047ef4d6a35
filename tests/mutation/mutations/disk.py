"""A full disk is a state, and an answer is the truth."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_FULL = "tests/crash/test_full_disk.py"
_REFUSED = f"{_FULL}::test_nothing_of_a_refused_group_is_there_after_a_restart"
_SYNC = f"{_FULL}::test_a_write_whose_sync_failed_is_not_there_after_a_restart"
_SMALL = "tests/kill/test_small_disk.py"

MUTATIONS = (
    Mutation(
        "leave-what-was-partly-written",
        "Nothing of a write that found no room is there, before or after a restart.",
        "storage/journal.py",
        "        self._file.truncate(FILE_HEADER_BYTES + self.position - self.files[-1].base)\n",
        "",
        (_REFUSED,),
    ),
    Mutation(
        "refuse-before-the-disk-knows",
        "What was refused for want of room is not brought back by a power loss.",
        "storage/journal.py",
        "self.position - self.files[-1].base)\n        self._file.sync()\n",
        "self.position - self.files[-1].base)\n",
        (f"{_FULL}::test_a_refusal_is_on_disk_before_it_is_told",),
    ),
    Mutation(
        "leave-seqs-of-refused-writes-out",
        "When there is room again, writes go on without a gap.",
        "log/write/refusals.py",
        "        for op in reversed(refused):\n            op.withdraw()\n",
        "",
        (_REFUSED, f"{_FULL}::test_a_group_written_aside_is_refused_like_any_other"),
    ),
    Mutation(
        "let-a-deletion-outlive-the-write-before-it",
        "A removal that was ordered behind a refused write takes nothing that comes later.",
        "log/write/refusals.py",
        "        if op.grows or not grown.isdisjoint(topics):\n",
        "        if op.grows:\n",
        (f"{_FULL}::test_a_removal_behind_a_write_that_is_refused_is_refused_with_it",),
    ),
    Mutation(
        "refuse-removals-on-a-full-disk",
        "Deletes, acks, drops, changes of a configuration and checkpoints succeed on a full disk.",
        "storage/reserve.py",
        "            if spare <= 0 or needed > spare:\n                return False\n",
        "            return False\n",
        (f"{_FULL}::test_removals_and_checkpoints_go_on", _SMALL),
    ),
    Mutation(
        "spend-the-reserve-on-writes",
        "Writes leave half of the reserve to removals.",
        "log/write/refusals.py",
        "            keep = self._reserve.half if any(op.grows for op in ops) else 0\n",
        "            keep = 0\n",
        (f"{_FULL}::test_the_other_half_is_left_to_removals",),
    ),
    Mutation(
        "take-all-that-is-free",
        "The reserve takes a sixteenth of what is free at most, and none rather than the last.",
        "storage/reserve.py",
        "min(wanted, (free + self.size) // SHARE)",
        "min(wanted, free + self.size)",
        ("tests/storage/test_reserve.py",),
    ),
    Mutation(
        "keep-the-reserve-in-memory-only",
        "A reserve that was made is there after a power loss.",
        "storage/reserve.py",
        "                self._file.sync()\n                self._fs.sync_dir(self._directory)\n",
        "",
        (f"{_FULL}::test_a_start_on_a_full_disk_serves_reads",),
    ),
    Mutation(
        "wait-for-a-restart",
        "Writes return by themselves when there is room.",
        "flow/disk_space.py",
        "            engine.resume_writes()\n",
        "            pass\n",
        ("tests/flow/test_disk_space.py",),
    ),
    Mutation(
        "say-ready-without-writes",
        "While writes are off, `ready` says so, and why.",
        "http/routes/probes.py",
        "        reason = self._writes_off()\n",
        "        reason = None\n",
        ("tests/http/routes/test_probes.py",),
    ),
    Mutation(
        "refuse-to-start-without-room",
        "A start on a full disk serves reads.",
        "storage/journal.py",
        "            if not is_full(error) or not self.files or self.files[-1].end != self.position:\n",
        "            if error:\n",
        (f"{_FULL}::test_a_start_on_a_full_disk_serves_reads", "tests/storage/test_void_frames.py"),
    ),
    Mutation(
        "leave-a-file-that-could-not-be-begun",
        "A journal file for which there was no room takes nothing from the one that goes on.",
        "storage/journal.py",
        "            self._forget_begun_file()\n",
        "",
        (f"{_FULL}::test_a_journal_file_that_cannot_be_begun_is_not_there",),
    ),
    Mutation(
        "write-ahead-of-a-hole",
        "A start that cannot note what is missing takes nothing until it can.",
        "log/recover/recovery.py",
        "            engine.hold_until(lambda: self._sign(lost_frames))\n",
        "            pass\n",
        (f"{_FULL}::test_a_start_that_cannot_note_what_is_missing_waits_for_room",),
    ),
    Mutation(
        "leave-what-a-failed-sync-refused",
        "A write that was answered with an error is never seen later, not even after a restart.",
        "log/write/refusals.py",
        "                void_frames(self._journal, [op.buffers for op in landed])\n",
        "                pass\n",
        (_SYNC, "tests/http/test_storage_failure.py"),
    ),
    Mutation(
        "void-without-a-sync",
        "What a failed sync refused is not brought back by a power loss.",
        "storage/void_frames.py",
        "    for _, file in journal.unsynced_files():\n        file.sync()\n",
        "",
        (_SYNC,),
    ),
    Mutation(
        "void-the-first-of-two-alike",
        "Taking a refused write out of the journal takes nothing that was acknowledged.",
        "storage/void_frames.py",
        "        for frame in frames[-wanted[header] :]:\n",
        "        for frame in frames:\n",
        (f"{_FULL}::test_of_frames_that_are_alike_those_that_took_effect_stay",),
    ),
    Mutation(
        "count-refused-seqs-as-heads",
        "No reader is told of a loss of what was never acknowledged.",
        "storage/void_frames.py",
        "            frame.void()\n    for header, frames",
        "            pass\n    for header, frames",
        (f"{_FULL}::test_heads_in_the_journal_do_not_speak_of_what_was_refused",),
    ),
    Mutation(
        "answer-what-is-not-known",
        "Where a refusal cannot be made true, the connection is closed without an answer.",
        "http/wire/exchange.py",
        "        if isinstance(error, OutcomeUnknown):\n",
        "        if False:\n",
        ("tests/http/test_storage_failure.py",),
    ),
)
