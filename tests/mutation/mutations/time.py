"""What is promised about time: how long things last, and what becomes of a clock that is set."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_STEPS = "tests/log/test_clock_steps.py"
_CONTRACT = "tests/contract/test_clock_steps.py"
_HOLDS = "tests/flow/test_file_holds.py"
_RESTORE = "tests/keep/test_restore.py"

MUTATIONS = (
    Mutation(
        "measure-durations-by-a-clock-that-is-set",
        "Leases, waits and holds last as long as they were given for, however the clock is set meanwhile.",
        "log/core.py",
        '        """For how long something lasts within this run, whatever becomes of the clock."""\n'
        "        return self._steady_ns() // NS_PER_MS\n",
        '        """For how long something lasts within this run, whatever becomes of the clock."""\n'
        "        return self.shown_time.now_ms()\n",
        (
            f"{_HOLDS}::test_a_clock_that_is_set_neither_ends_nor_prolongs_it",
            f"{_CONTRACT}::test_leases_neither_end_nor_last_longer",
        ),
    ),
    Mutation(
        "let-times-fall",
        "The `$ts` of records never falls in a topic, though the clock is set back.",
        "log/write/append.py",
        "now if now > topic.last_ts else topic.last_ts",
        "now",
        (f"{_STEPS}::test_times_never_fall_in_a_topic_and_follow_the_clock_in_others",),
    ),
    Mutation(
        "wait-ten-days-for-the-clock",
        "Once a clock that was ahead is corrected, age goes by it again, with and without a restart.",
        "storage/witness.py",
        "        elif now < self.floor_ms - WAITED_FOR_MS:\n",
        "        elif now < 0:\n",
        (
            f"{_STEPS}::test_age_goes_by_the_clock_again_once_it_is_corrected",
            f"{_CONTRACT}::test_a_clock_that_was_ahead_for_a_while",
        ),
    ),
    Mutation(
        "revive-what-a-clock-ahead-has-taken",
        "What age has taken stays gone after the clock is set back, whatever ends the process.",
        "log/engine.py",
        "for topic in self.by_id.values() if topic.ttl_hi]",
        "for topic in () if topic.ttl_hi]",
        (f"{_STEPS}::test_what_age_has_taken_stays_gone",),
    ),
    Mutation(
        "go-by-a-mark-of-before-the-step",
        "What age takes after the clock was set back stays gone, also if a sync was under way just then.",
        "log/clock_mark.py",
        "        if steps_back == self._steps_back:\n",
        "        if True:\n",
        (f"{_STEPS}::test_a_mark_that_was_under_way_when_the_clock_was_set_back_covers_nothing",),
    ),
    Mutation(
        "take-the-time-of-records-for-the-time-of-day",
        "A restart ages a topic that is ahead of the clock just as it was aged before.",
        "log/recover/replay.py",
        "            expire(topic, frame.clock_ms)\n            topic.assign",
        "            expire(topic, frame.ts)\n            topic.assign",
        (f"{_STEPS}::test_replay_ages_a_topic_that_is_ahead_as_it_was_aged",),
    ),
    Mutation(
        "let-windows-stand-still",
        "Windows of idempotency keys end in time after the clock was set back.",
        "log/core.py",
        "        self.keys.set_back(shown_ms, now_ms)\n",
        "",
        (f"{_STEPS}::test_windows_of_keys_do_not_wait_for_the_clock_to_come_again",),
    ),
    Mutation(
        "let-windows-stand-still-after-a-restart",
        "Over a restart as well: a key counts from when it was written, not from the time of its records.",
        "log/write/all_keys.py",
        "frame.first_seq, frame.clock_ms)",
        "frame.first_seq, frame.ts)",
        (f"{_STEPS}::test_windows_of_keys_do_not_wait_for_the_clock_to_come_again",),
    ),
    Mutation(
        "be-ahead-in-silence",
        "Times that are ahead of the clock by more than a minute are told: in the log, `ready` and metrics.",
        "log/clock_lead.py",
        "        return max(self._latest_ms - wall_ms, 0)\n",
        "        return 0\n",
        (
            f"{_STEPS}::test_time_that_is_ahead_is_told",
            f"{_CONTRACT}::test_a_clock_that_was_ahead_for_a_while",
        ),
    ),
    Mutation(
        "let-a-lease-end-while-the-server-is-down",
        "A durable lease has as much time left after an orderly restart as before it.",
        "flow/queues/queue.py",
        "before.clock_ms if before.clean else engine.opened_ms",
        "engine.opened_ms",
        (f"{_CONTRACT}::test_leases_neither_end_nor_last_longer",),
    ),
    Mutation(
        "give-a-lease-the-days-that-the-clock-lost",
        "After a crash a durable lease ends at its deadline, and at most its own length after the start.",
        "flow/queues/leases.py",
        "min(time_ms - over_ms, time_ms - self._written_ms[seq])",
        "time_ms - over_ms",
        (f"{_CONTRACT}::test_a_lease_ends_at_its_deadline_after_a_crash",),
    ),
    Mutation(
        "end-a-restore-where-the-clock-was-ahead",
        "A restore to a moment after the clock was set back has what was written before that.",
        "keep/restore.py",
        "            set_back, over = item.position, None\n",
        "            continue\n",
        (f"{_RESTORE}::test_a_moment_after_the_clock_was_set_back",),
    ),
    Mutation(
        "set-the-clock-back-before-what-waits",
        "What was asked for before the clock was set back stands before that in the journal.",
        "log/engine.py",
        "            if self.queue.is_stuck or self.queue.waiting or self.queue.held:\n",
        "            if self.queue.is_stuck:\n",
        (f"{_STEPS}::test_what_waits_comes_before_the_time_that_goes_back",),
    ),
    Mutation(
        "stall-without-a-name",
        "Which request held the event loop, and for how long, is told.",
        "http/wire/pipeline.py",
        "        route.holds.note(perf_counter() - exchange.started)\n",
        "",
        ("tests/http/metrics/test_server.py::test_who_holds_the_loop",),
    ),
)
