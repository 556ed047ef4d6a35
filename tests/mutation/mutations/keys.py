"""Retries are safe: a key is remembered as long as its records and its window last, and no longer."""

from tests.mutation.runner import Mutation

_MEMORY = "tests/log/write/test_idempotency.py"
_RESTARTS = "tests/log/recover/test_keys.py"
_TOGETHER = "tests/flow/test_convoys.py"
_SWEEP = "tests/crash/test_sweep.py::test_a_crash_behind_every_change[append with a key]"
_PRODUCER = (
    "tests/contract/test_idempotency.py::test_a_producer_that_retries_over_restarts_writes_every_record_once"
)

_MANY = "tests/log/write/test_together.py"

MUTATIONS = (
    Mutation(
        "part-a-key-from-its-records-in-company",
        "Records that are written together and their keys are one frame.",
        "log/write/together.py",
        "kind, keys, holder = _KEYED, taken.encoded(), topic.keys\n",
        "holder = topic.keys\n",
        (_MANY,),
    ),
    Mutation(
        "keep-the-keys-of-what-is-left",
        "A write that is left to others has taken no key: it is written.",
        "log/write/together.py",
        "        if taken is not None:\n            taken.withdraw()\n        return False\n",
        "        return False\n",
        (_MANY,),
    ),
    Mutation(
        "forget-keys-at-a-restart",
        "A producer that retries over restarts writes every record once.",
        "log/write/all_keys.py",
        "        self.of(topic).replay(keys, frame.first_seq, frame.clock_ms)\n",
        "        pass\n",
        (_PRODUCER, _RESTARTS, _SWEEP),
    ),
    Mutation(
        "leave-keys-out-of-snapshots",
        "A key outlives the journal that has it, for the rest of its window.",
        "log/write/all_keys.py",
        "        return EncodedState([*head, *topics]) if count else None\n",
        "        return None\n",
        (_RESTARTS, _SWEEP),
    ),
    Mutation(
        "part-a-key-from-its-records",
        "Records and their key are one frame: after a crash both are there, or neither is.",
        "log/write/append.py",
        "            payload, flags = encode_payload(batch, rows, hops, op.keys.encoded())\n"
        "            kind = _KEYED\n",
        "            payload, flags = encode_payload(batch, rows, hops)\n            kind = _APPEND\n",
        (_SWEEP, _RESTARTS),
    ),
    Mutation(
        "keep-the-key-of-a-failed-write",
        "A write that failed leaves no key: its retry is written.",
        "log/topic.py",
        "        if self.keys is not None:\n            self.keys.take_back(seq)\n",
        "",
        (_MEMORY, _TOGETHER),
    ),
    Mutation(
        "keep-the-key-of-a-refused-write",
        "A write that was refused leaves no key: its retry is written.",
        "log/write/append.py",
        "        if op.keys is not None:\n            op.keys.withdraw()\n",
        "",
        (_MEMORY, "tests/contract/test_write.py::test_a_refused_write_does_not_use_up_its_key"),
    ),
    Mutation(
        "answer-for-a-write-under-way",
        "A retry is answered when the first write is committed, not before.",
        "log/write/idempotency.py",
        "        if first_seq > self.topic.head:\n",
        "        if False:\n",
        (_MEMORY, _TOGETHER),
    ),
    Mutation(
        "write-a-repeat-in-company",
        "Two writes with one key that come together are written once.",
        "log/write/idempotency.py",
        "            if place in by_place:\n",
        "            if False:\n",
        (_TOGETHER,),
    ),
    Mutation(
        "remember-for-ever",
        "After its window a key is new again.",
        "log/write/idempotency.py",
        "            if known.time(at) >= self.since(now_ms):\n",
        "            if True:\n",
        (_MEMORY, _RESTARTS),
    ),
    Mutation(
        "bring-keys-back-with-a-longer-window",
        "A longer window brings no key back that a shorter one had ended, after a restart either.",
        "log/lifecycle.py",
        "    if topic.keys is not None:\n        topic.keys.close_window(now)\n    topic.set_config(config)\n"
        "    expire(topic, now, at_once=True)\n    if topic.keys is not None:\n"
        "        topic.keys.close_window(now)\n",
        "    topic.set_config(config)\n    expire(topic, now, at_once=True)\n",
        (_MEMORY, _RESTARTS, "tests/model/test_engine_against_model.py::test_walk"),
    ),
    Mutation(
        "find-the-first-use-of-a-key",
        "A key that is used again after its window counts from its second use.",
        "log/write/idempotency.py",
        "            # It is over and comes again; no chunk has a key twice.\n"
        "            known.is_closed = True\n",
        "",
        (_MEMORY,),
    ),
    Mutation(
        "keep-keys-of-ephemeral-records",
        "A restart that takes records takes their keys along.",
        "log/write/idempotency.py",
        "        return [chunk.dump(self.topic.head) for chunk in self.chunks if chunk.is_kept]\n",
        "        return [chunk.dump(self.topic.head) for chunk in self.chunks]\n",
        (_RESTARTS,),
    ),
    Mutation(
        "save-a-key-before-its-records",
        "A snapshot has no key of a write that is not committed.",
        "log/write/key_chunk.py",
        "        copy.cut(self.length_at(head))\n",
        "",
        (_RESTARTS,),
    ),
    Mutation(
        "answer-for-records-that-a-restore-left-out",
        "A log that is restored to an earlier seq does not know the keys of what came later.",
        "keep/restore.py",
        "    if topic.keys is not None:\n        topic.keys.take_back(head)\n",
        "",
        ("tests/keep/test_restore.py",),
    ),
    Mutation(
        "remember-any-number-of-keys",
        "Keys are bounded for each topic, and the oldest go first.",
        "log/write/all_keys.py",
        "        if keys.count > self.most_a_topic:\n",
        "        if False:\n",
        (_MEMORY,),
    ),
    Mutation(
        "remember-any-number-of-keys-in-all",
        "Keys are bounded in all, and the oldest of any topic go first.",
        "log/write/all_keys.py",
        "        if self.count > self.most:\n",
        "        if False:\n",
        (_MEMORY, "tests/contract/test_idempotency.py::test_bounds_are_kept_counted_and_told"),
    ),
    Mutation(
        "forget-keys-in-silence",
        "A key that has to go before its window is over is counted.",
        "log/write/idempotency.py",
        "                self.all.forgotten += early\n",
        "",
        (_MEMORY, "tests/contract/test_idempotency.py::test_bounds_are_kept_counted_and_told"),
    ),
    Mutation(
        "count-keys-that-were-over",
        "A key whose window was over when it went is not counted as forgotten.",
        "log/write/idempotency.py",
        "            early = upto - max(chunk.index_at(since), chunk.gone)\n",
        "            early = upto - chunk.gone\n",
        (_MEMORY,),
    ),
    Mutation(
        "write-keys-down",
        "What a client chose as a key is in no file.",
        "log/write/idempotency.py",
        "        digest = self.all.digest(key)\n        place = place_of(digest)",
        "        digest = key[:DIGEST_BYTES].ljust(DIGEST_BYTES)\n        place = place_of(digest)",
        (_RESTARTS,),
    ),
    Mutation(
        "use-another-salt-each-time",
        "A key that is remembered is known by the same digest after a restart.",
        "log/write/all_keys.py",
        "            self._use_salt(keys.salt)\n",
        "            pass\n",
        (_RESTARTS,),
    ),
)
