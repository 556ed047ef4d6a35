"""What is promised to readers that come with a position of another life of a topic."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_CONTRACT = "tests/contract/test_epochs.py"
_PLACES = "tests/flow/watch/test_places.py"
_LIVES = "tests/log/test_lives.py"
_CURSORS = "tests/flow/test_cursors.py"
_RESTORE = "tests/keep/test_restore.py"
_SWEEP = "tests/crash/test_sweep.py::test_a_crash_behind_every_change[drop and make again]"

MUTATIONS = (
    Mutation(
        "compare-cursors-of-two-lives",
        "An id from another life of a topic is not compared with where the stream is: it starts over.",
        "flow/watch/places.py",
        "            if epoch == known or (epoch is None and name not in self.later):\n",
        "            if True:\n",
        (_PLACES, f"{_CONTRACT}::test_an_id_of_a_former_life_rewinds_to_the_start_of_this_one"),
    ),
    Mutation(
        "take-an-epoch-for-decoration",
        "A watch with the epoch of another life is told `recreated`, and gets this one from its beginning.",
        "http/routes/streams/subscriptions.py",
        "        return Opening(topic, start.from_seq, start.epoch)\n",
        "        return Opening(topic, start.from_seq, topic.id)\n",
        (f"{_CONTRACT}::test_a_session_shows_epochs_and_takes_them",),
    ),
    Mutation(
        "wait-until-a-wrong-position-looks-right",
        "A position above the head stays one of another life, also when more is written before it is read.",
        "http/routes/streams/subscriptions.py",
        "topic.id if start.from_seq <= topic.head else NO_LIFE",
        "topic.id",
        (f"{_CONTRACT}::test_a_position_above_the_head_does_not_become_right_by_waiting",),
    ),
    Mutation(
        "forget-which-names-there-were",
        "Which topics came after another one of their name is known after every restart.",
        "log/lives.py",
        "        self._names.load(known.names)\n",
        "",
        (f"{_LIVES}::test_restarts",),
    ),
    Mutation(
        "take-every-creation-for-a-first-one",
        "A watcher that comes back after a crash with an id of another life is told so.",
        "log/recover/replay.py",
        "            first_life=frame.kind == Kind.CREATE,\n",
        "            first_life=True,\n",
        (_SWEEP,),
    ),
    Mutation(
        "let-a-name-be-new-while-its-drop-is-on-the-way",
        "A topic made while the one before it is still being dropped comes later than that one.",
        "log/lifecycle.py",
        "    core.lives.remember(name)\n",
        "",
        (f"{_LIVES}::test_a_name_is_free_while_its_drop_is_on_the_way",),
    ),
    Mutation(
        "forget-names-in-silence",
        "Beyond the names of dropped topics that are remembered, every new topic counts as a later one.",
        "log/lives.py",
        "            self.all_later = True\n\n    def begin_anew",
        "            pass\n\n    def begin_anew",
        (f"{_LIVES}::test_beyond_the_bound_every_new_topic_counts_as_later",),
    ),
    Mutation(
        "let-cursors-go-with-their-topic",
        "A named cursor outlives its topic, and still names the life for which it was set.",
        "flow/cursors.py",
        "        self._kept.topic_gone(topic.name)\n\n\n",
        "        for cursor in self.of(topic.name):\n"
        "            self._kept.remove(topic.name, cursor.consumer)\n\n\n",
        (f"{_CURSORS}::test_cursors_outlive_their_topic", _SWEEP),
    ),
    Mutation(
        "remove-cursors-of-gone-topics-in-memory-only",
        "A cursor that was removed while its topic was gone stays removed after a crash.",
        "flow/cursors.py",
        "        name = moved.topic if topic is None else topic.name\n",
        "        name = None if topic is None else topic.name\n",
        (_SWEEP,),
    ),
    Mutation(
        "keep-unused-cursors-for-ever",
        "A named cursor that was not used for 30 days is forgotten.",
        "flow/kept_cursors.py",
        "        return self.used_ts > 0 and now - self.used_ts > UNUSED_MS\n",
        "        return False\n",
        (f"{_CURSORS}::test_a_cursor_goes_when_it_was_not_used_for_thirty_days",),
    ),
    Mutation(
        "forget-cursors-of-an-older-server-at-once",
        "Named cursors that an older server left are there, however long ago they were set.",
        "flow/cursors.py",
        "            self._apply(name, moved, frame.ts if self._uses_are_known else 0)\n",
        "            self._apply(name, moved, frame.ts)\n",
        (f"{_CURSORS}::test_what_an_older_server_kept_counts_as_used_now",),
    ),
    Mutation(
        "take-a-restored-log-for-the-one-it-was",
        "After a restore no id from before is taken for one of now, not even of a topic made since.",
        "keep/restore.py",
        "    engine.lives.begin_anew()\n",
        "",
        (
            f"{_RESTORE}::test_no_topic_of_a_restored_directory_is_in_its_first_life",
            "tests/contract/test_watcher_across_a_restore.py",
        ),
    ),
    Mutation(
        "restore-twice-into-one-life",
        "Every restore gives its topics epochs that no other has, also in the same second.",
        "keep/restore.py",
        "int(time.time() * IDS_PER_SECOND)",
        "int(time.time()) * IDS_PER_SECOND",
        (f"{_RESTORE}::test_two_restores_at_once_have_different_epochs",),
    ),
)
