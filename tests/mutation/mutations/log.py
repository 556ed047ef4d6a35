"""What the log itself promises: records, seqs, deletions, crashes."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_SWEEP = "tests/crash/test_sweep.py"
_EVERY_CHANGE = f"{_SWEEP}::test_a_crash_behind_every_change"


def _crash(*operations: str) -> tuple[str, ...]:
    return tuple(f"{_EVERY_CHANGE}[{operation}]" for operation in operations)


_MANY = "tests/log/write/test_together.py"
_GATHERED = "tests/log/write/test_gather.py"

MUTATIONS = (
    Mutation(
        "take-two-arrays-for-one-in-company",
        "A write that comes together with others is taken only if it would be taken alone.",
        "log/write/gather.py",
        " or len(writes) != len(arrays):",
        ":",
        (_GATHERED,),
    ),
    Mutation(
        "let-borders-overlap-in-company",
        "Writes that come together are told apart, whatever they say.",
        "log/write/gather.py",
        r"""b'],"\\u0000",['""",
        r"""b',"\\u0000",'""",
        (_GATHERED,),
    ),
    Mutation(
        "keep-blanks-of-what-is-too-deep",
        "No row has a newline in it, however deep its data is.",
        "log/write/gather.py",
        '        return b""  # as odd',
        "        return body  # as odd",
        (_GATHERED,),
    ),
    Mutation(
        "keep-what-was-refused-in-company",
        "Of a write that was refused together with others, nothing stays in any of their topics.",
        "log/write/together.py",
        "in reversed(self.shares):\n            topic.take_back(first_seq - 1, count, size)\n",
        "in reversed(self.shares):\n",
        (_MANY,),
    ),
    Mutation(
        "use-seqs-that-are-not-reserved-in-company",
        "Writers who come together do not get seqs that are not reserved.",
        "log/topic.py",
        "            last_seq > self.reserved\n            or last_seq > MAX_SEQ\n",
        "            last_seq > MAX_SEQ\n",
        (_MANY,),
    ),
    Mutation(
        "forget-limits-in-company",
        "Caps and ages hold for writers who come together.",
        "values/config.py",
        "    if config.ttl_ms or config.cap_records or config.cap_bytes or",
        "    if",
        (_MANY,),
    ),
    Mutation(
        "let-others-wait-in-company",
        "A change of one topic that waits for the disk does not make writers of others wait.",
        "log/write/together.py",
        "            held = held.union(*[op.topics for op in queue.waiting])\n",
        "            pass\n",
        (_MANY,),
    ),
    Mutation(
        "forget-later-limits-in-company",
        "A cap that was on its way before them holds for writers who come together.",
        "log/write/together.py",
        "            show(self._core, topic, count, size, ts, clock_ms)\n",
        "            topic.publish(count, size, ts)\n",
        (_MANY,),
    ),
    Mutation(
        "take-a-share-of-others-along",
        "A write that is left takes nothing from others that go to its topic in the same turn.",
        "log/write/together.py",
        "            op.forget_behind(before)\n",
        "            op.forget_behind(max(before - 1, 0))\n",
        (_MANY,),
    ),
    Mutation(
        "overtake-in-company",
        "A write does not overtake one of its topic that waits for the disk.",
        "log/topic.py",
        " or (self.pending_sync and not verdict & SYNCED):",
        ":",
        (_MANY,),
    ),
    Mutation(
        "overtake-in-one-go",
        "What is written in one go does not overtake what waits for the journal.",
        "log/write/commit_queue.py",
        "        return not (is_engaged or self.refusal or self.is_large) and self.is_free()\n",
        "        return not (self.refusal or self.is_large) and self.is_free()\n",
        ("tests/log/write/test_together_commit.py",),
    ),
    Mutation(
        "write-again-in-one-go",
        "What was written in one go is not written a second time, whatever goes wrong behind it.",
        "log/write/together.py",
        "        self._unsynced = self._synced = None\n        if synced.shares:\n",
        "        if synced.shares:\n",
        ("tests/log/write/test_together_commit.py",),
    ),
    Mutation(
        "wait-in-vain-for-a-sync",
        "What found room in the reserve, and waits for a sync, is not left waiting.",
        "log/write/together.py",
        "        queue.rescue(error, ops)\n",
        "        queue.rescue(error, ops)\n        return\n",
        ("tests/log/write/test_together_commit.py",),
    ),
    Mutation(
        "leave-a-sync-to-others",
        "What waits for a sync gets it, whatever goes wrong with what was written with it.",
        "log/write/together.py",
        """        finally:
            # Whatever goes wrong with some, the others do not wait in vain for their sync.
""",
        """        except MemoryError:
            raise
        else:
""",
        ("tests/log/write/test_together_commit.py",),
    ),
    Mutation(
        "take-a-reservation-for-asked",
        "A reservation that could not be asked for is asked for again.",
        "log/write/reservation.py",
        "            topic.withdraw_reservation()\n            raise\n",
        "            raise\n",
        ("tests/log/write/test_reservation.py",),
    ),
    Mutation(
        "free-a-name-that-is-kept",
        "A topic whose deletion is refused is there as before.",
        "log/lifecycle.py",
        """    # Behind the time, as above: a refusal must not leave the name free.
    core.queue.require_room(1)
""",
        "",
        ("tests/log/test_lifecycle.py",),
    ),
    Mutation(
        "write-at-once-in-a-pause",
        "While a checkpoint has writing paused, nothing is written at once.",
        "log/write/commit_loop.py",
        "        return not (is_slowed or self._paused)\n",
        "        return not is_slowed\n",
        ("tests/log/write/test_commit_loop.py",),
    ),
    Mutation(
        "wait-on-fast-disks",
        "Only a slow sync waits for the writers who were just answered.",
        "log/write/commit_loop.py",
        "        is_worth_it = self.usual_s > SLOW_SYNC_S and writers > 1\n",
        "        is_worth_it = writers > 1\n",
        ("tests/log/write/test_company.py",),
    ),
    Mutation(
        "skip-the-sync",
        "An acknowledged `fsync` write survives a power loss.",
        "storage/journal.py",
        "                file.truncate(self.ends[file])\n            file.sync()\n",
        "                file.truncate(self.ends[file])\n",
        _crash("append fsync"),
    ),
    Mutation(
        "answer-before-the-sync",
        "A write is answered when its class is satisfied, not before.",
        "log/write/append.py",
        '    if durability == "fsync":\n        op.sync = True\n',
        "",
        _crash("append fsync"),
    ),
    Mutation(
        "forget-the-directory-of-the-journal",
        "A new journal file survives a power loss together with its frames.",
        "storage/journal.py",
        "        if self.directory is not None:\n            self.fs.sync_dir(self.directory)\n",
        "",
        _crash("rotate the journal", "append fsync"),
    ),
    Mutation(
        "rename-before-the-sync",
        "A snapshot is whole or not there.",
        "storage/filesystem.py",
        "                    view.release()\n        file.sync()\n",
        "                    view.release()\n",
        _crash("snapshot", "seal"),
    ),
    Mutation(
        "believe-what-was-written",
        "One write that goes astray does not take both snapshots.",
        "storage/snapshot.py",
        "        if self._read(number, from_disk=True) is None:\n",
        "        if False:\n",
        ("tests/storage/test_snapshot.py",),
    ),
    Mutation(
        "overtake-a-write-under-way",
        "Nothing reaches the journal ahead of a group that is being written.",
        "log/write/commit_queue.py",
        "        write.wait()\n        before = self._journal.position\n",
        "        before = self._journal.position\n",
        ("tests/log/write/test_writing_aside.py",),
    ),
    Mutation(
        "forget-the-directory-of-the-snapshots",
        "The journal is dropped only when a durable snapshot makes it dispensable.",
        "storage/filesystem.py",
        "    replace_file(fs, os.path.join(directory, name), parts)\n    fs.sync_dir(directory)\n",
        "    replace_file(fs, os.path.join(directory, name), parts)\n",
        _crash("snapshot", "seal"),
    ),
    Mutation(
        "use-seqs-that-are-not-reserved",
        "A seq is never given to two records, in any class, not even across a power loss.",
        "log/write/reservation.py",
        "    op.sync = True\n    if last_seq > topic.reserve_asked:\n",
        "    if last_seq > topic.reserve_asked:\n",
        _crash("append with a reservation"),
    ),
    Mutation(
        "believe-small-frames",
        "Frames that are read together are as intact as those that are read one by one.",
        "storage/frame_stretch.py",
        '        & (headers["payload_checksum"] == np.frombuffer(payloads, ">u8"))\n',
        "",
        ("tests/storage/test_frame_stretch.py",),
    ),
    Mutation(
        "believe-any-payload",
        "A frame whose bytes changed is damage, never a record.",
        "storage/journal_reader.py",
        "    if len(payload) != header.payload_length or not is_intact:\n",
        "    if len(payload) != header.payload_length:\n",
        ("tests/log/recover/test_lost_frames.py", "tests/storage/test_journal_reader.py"),
    ),
    Mutation(
        "take-all-damage-for-a-torn-tail",
        "Damage inside the log is an announced hole; what lies behind it is kept.",
        "storage/journal_reader.py",
        "        return position < self._proven\n",
        "        return False\n",
        ("tests/log/recover/test_lost_frames.py", "tests/storage/test_journal_reader.py"),
    ),
    Mutation(
        "evict-in-silence",
        "A cap that takes records from readers says so.",
        "log/remove/retention.py",
        "        topic.raise_line(ledger.CAP, last)\n",
        "        pass\n",
        ("tests/log/test_worked_states.py", "tests/model/test_engine_against_model.py::test_walk"),
    ),
    Mutation(
        "expire-in-silence",
        "A TTL that takes records from readers says so.",
        "log/remove/retention.py",
        "        topic.raise_line(ledger.TTL, last, unnoted=takes_ephemeral)\n",
        "        pass\n",
        ("tests/log/test_worked_states.py", "tests/model/test_engine_against_model.py::test_walk"),
    ),
    Mutation(
        "announce-a-deletion",
        "What somebody deleted is gone without a tombstone.",
        "log/remove/deletion.py",
        "        removed = remove_front(topic, limit - 1, ledger.DELETED)[0] if limit > floor else 0\n",
        "        topic.raise_line(ledger.CAP, limit - 1)\n"
        "        removed = remove_front(topic, limit - 1, ledger.DELETED)[0] if limit > floor else 0\n",
        ("tests/log/test_worked_states.py", "tests/model/test_engine_against_model.py::test_walk"),
    ),
    Mutation(
        "drop-a-flag-flip",
        "A deleted record does not come back, whatever is read to start from.",
        "log/seal/checkpoint.py",
        "        segment.flip(entry_of(segment, flip.run), indexes)\n",
        "        segment.entry(flip.run.topic_id, flip.run.base)\n",
        (
            "tests/log/seal/test_checkpoint.py",
            "tests/model/test_engine_against_model.py::test_walk",
            *_crash("flip flags"),
        ),
    ),
    Mutation(
        "take-a-failed-sync-for-done",
        "After a failed sync nobody pretends: writes are off, reads go on, a restart makes it good.",
        "log/write/commit_queue.py",
        "        if error is not None:\n            self._latch(error)\n            return\n"
        "        ops, self._syncing",
        "        ops, self._syncing",
        ("tests/crash/test_sync_failure.py", "tests/log/write/test_commit_failure.py"),
    ),
    Mutation(
        "trust-pages-a-failed-sync-left",
        "What a restart finds in memory only is made safe before it counts as safe.",
        "storage/journal.py",
        "                    file.write([file.read(file.size() - at, at)], at)\n",
        "",
        ("tests/crash/test_sync_failure.py",),
    ),
    Mutation(
        "forget-what-was-acknowledged",
        "A killed process that was cut off leaves an announced hole, not a shorter log.",
        "storage/witness.py",
        "        self._words[_ACKED] = position\n",
        "        pass\n",
        ("tests/log/recover/test_lost_frames.py", "tests/storage/test_witness.py"),
    ),
    Mutation(
        "answer-a-deletion-before-the-sync",
        "What was deleted, in any class that keeps records, is not back after a power loss.",
        "log/remove/deletion.py",
        'sync = sync or topic.config.durability == "fsync"\n    core.queue.submit(CallbackOp(',
        "sync = False\n    core.queue.submit(CallbackOp(",
        _crash("delete by seq", "delete by tag, fsync"),
    ),
    Mutation(
        "forget-a-router-s-cursor",
        "Every record reaches a destination once, in order, also when the server is killed in between.",
        "flow/routers/step.py",
        "        at_once, synced = RouteOp(self._engine, sync=False), RouteOp(self._engine, sync=True)\n",
        "        at_once, synced = RouteOp(self._engine, sync=False), RouteOp(self._engine, sync=False)\n",
        _crash("forward"),
    ),
    Mutation(
        "part-a-group",
        "A job on its way to the dead letters is in the queue or there, never in both and never in neither.",
        "log/write/group.py",
        "core.journal.frame_of(Kind.GROUP, [*frames, *fact(group.members)], **header)",
        "[*frames, *fact(group.members)]",
        ("tests/crash/test_dead_letters.py", "tests/flow/queues/test_dead_letters.py"),
    ),
)
