"""What queues promise about the jobs that they lose."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_LOSSES = "tests/flow/queues/test_losses.py"
_CONTRACT = "tests/contract/test_queue_losses.py"
_HISTORY = "tests/crash/test_simulator.py::test_a_random_history"

MUTATIONS = (
    Mutation(
        "lose-jobs-in-silence",
        "Jobs that a cap, a TTL or a crash took before they were finished are told to the next worker.",
        "flow/queues/queue.py",
        "            self.losses.is_suspect = True\n",
        "",
        (f"{_LOSSES}::test_a_cap_takes_jobs_that_were_not_finished", f"{_HISTORY}[0]"),
    ),
    Mutation(
        "forget-what-was-told",
        "A loss that a worker was told of is not told again after a restart.",
        "flow/queues/queue.py",
        "        self._keep_told(self)\n",
        "",
        (f"{_LOSSES}::test_what_was_told_is_not_told_again_and_the_rest_is", _CONTRACT),
    ),
    Mutation(
        "note-before-it-was-told",
        "A loss counts as told when a worker has its answer, not before.",
        "flow/queues/losses.py",
        "        told, settled = min(self._told, head), min(self._settled, head)\n",
        "        told, settled = min(self._offered, head), min(self._settled, head)\n",
        (f"{_LOSSES}::test_a_process_that_dies_before_it_says_so_tells_again",),
    ),
    Mutation(
        "call-finished-jobs-lost",
        "Jobs that were finished before a restart took the rest are not told as lost.",
        "log/recover/replay.py",
        "            note_unfound(topic, selector)\n",
        "",
        (_LOSSES, f"{_HISTORY}[1]"),
    ),
    Mutation(
        "hide-a-loss-behind-a-delete",
        "A delete that comes after a loss does not hide it.",
        "flow/queues/losses.py",
        "        first = max(first, self._settled + 1)\n",
        "",
        (f"{_LOSSES}::test_a_delete_after_the_loss_does_not_hide_it",),
    ),
    Mutation(
        "tell-of-the-first-edition",
        "What a queue had lost before losses were told is not told as if it were new.",
        "flow/queues/loss_journal.py",
        "            queue.losses.pass_over()\n",
        "            pass\n",
        (f"{_LOSSES}::test_what_was_lost_before_this_edition_is_not_told",),
    ),
    Mutation(
        "mix-the-lost-with-the-skipped",
        "A worker that names a lost job hears that it is lost.",
        "flow/queues/queue.py",
        "        lost = [seq for seq in unheld if self.losses.is_lost(seq)]\n",
        "        lost: list[int] = []\n",
        (f"{_LOSSES}::test_lost_jobs_are_named_apart_in_every_answer",),
    ),
    Mutation(
        "acknowledge-a-job-that-is-gone",
        "An acknowledgement that comes too late for a job says so.",
        "flow/queues/acks.py",
        "{seq for seq in seqs if every.is_lost(seq)} if count < len(seqs) else ()\n",
        "()\n",
        (f"{_LOSSES}::test_a_job_that_is_lost_while_its_acknowledgement_is_on_its_way",),
    ),
    Mutation(
        "wake-only-one-who-waits",
        "A claim that waits for a job goes on waiting when another worker got it.",
        "http/routes/jobs/waiting_claim.py",
        "        if claim.jobs or claim.notice is not None or self._is_over:\n",
        "        if True:\n",
        ("tests/http/routes/jobs/test_waiting_claim.py",),
    ),
    Mutation(
        "lease-to-the-departed",
        "A worker that went away while it waited takes no job with it.",
        "http/routes/jobs/waiting_claim.py",
        "        self._exchange.on_close(self._leave)\n",
        "",
        ("tests/contract/test_claim_waits.py::test_a_worker_that_leaves_takes_no_job_with_it",),
    ),
)
