"""Whose a directory is, and what must not happen to it."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_CHOICE = "tests/storage/test_cold_choice.py"
_FILES = "tests/storage/test_cold_files.py"
_HOME = "tests/storage/test_home.py"
_WATCH = "tests/node/test_directory_watch.py"
_CONTRACT = "tests/contract/test_directories.py"
_SECOND = f"{_CONTRACT}::test_a_second_server_does_not_touch_the_cold_directory_of_the_first"

MUTATIONS = (
    Mutation(
        "share-a-cold-directory",
        "A cold directory belongs to one log: another does not start on it, and nothing in it is touched.",
        "storage/cold_choice.py",
        "        if self._identity is None or owner.identity != self._identity.identity:\n            raise",
        "        if False:\n            raise",
        (_SECOND, f"{_CHOICE}::test_a_directory_of_another_log"),
    ),
    Mutation(
        "take-what-is-not-empty",
        "A directory that is not empty becomes a cold directory only if this log has used it so far.",
        "storage/cold_choice.py",
        "        if not is_noted and not self._holds_what_is_missing(path):\n",
        "        if False:\n",
        (f"{_CONTRACT}::test_a_directory_that_is_not_empty_is_not_taken", _CHOICE),
    ),
    Mutation(
        "believe-a-copy",
        "A copy of a data directory does not get the cold directory of the original.",
        "storage/cold_choice.py",
        "        if self._is_copy(owner.data_dir):\n",
        "        if False:\n",
        (f"{_CONTRACT}::test_a_copy_of_a_data_directory_does_not_get_the_cold_one", _CHOICE),
    ),
    Mutation(
        "take-an-empty-mount-for-all-there-is",
        "A cold directory that is not mounted stops the start: what lies there is not announced as lost.",
        "storage/cold_choice.py",
        "            if is_noted and self._missing(path):\n",
        "            if False:\n",
        (f"{_CHOICE}::test_a_directory_that_is_not_mounted",),
    ),
    Mutation(
        "remove-what-another-wrote",
        "Nothing is removed from a cold directory that this log did not write.",
        "storage/cold_files.py",
        "        if self._is_ours(path, number):\n            self._fs.remove(path)\n",
        "        self._fs.remove(path)\n",
        (f"{_CONTRACT}::test_what_others_put_there_stays", _FILES),
    ),
    Mutation(
        "write-over-what-another-wrote",
        "No file in a cold directory is written over that this log did not write.",
        "storage/cold_files.py",
        "        return not self._fs.exists(path) or self._is_ours(path, number)\n",
        "        return True\n",
        (_FILES, "tests/flow/test_tiers.py"),
    ),
    Mutation(
        "read-another-log's-run",
        "A segment that another log has written over is announced as lost, and not read as ours.",
        "log/seal/segment_store.py",
        "    if (entry.count, entry.first_ts, entry.last_ts) != (run.count, run.first_ts, run.last_ts):\n",
        "    if False:\n",
        ("tests/log/seal/test_segment_store.py",),
    ),
    Mutation(
        "lock-only-a-file",
        "Removing the lock file does not let a second server in.",
        "storage/filesystem.py",
        "        try:\n            return locked(os.open(path, flags), path)\n",
        "        try:\n            return os.open(path, flags)\n",
        (f"{_CONTRACT}::test_a_lock_that_cannot_be_walked_around", _HOME),
    ),
    Mutation(
        "claim-before-the-identity-is-safe",
        "A log and its cold directory know each other after a crash at any point of the first start.",
        "storage/home.py",
        "            fs.sync_dir(dirs.root)\n",
        "            pass\n",
        ("tests/crash/test_ownership.py",),
    ),
    Mutation(
        "restore-beside-the-running-server",
        "A restore refuses the cold directory of another log, and asks for one of its own.",
        "keep/restore.py",
        "        self._require_own_cold_dir()\n",
        "",
        (f"{_CONTRACT}::test_a_restore_asks_for_a_directory_of_its_own",),
    ),
    Mutation(
        "check-with-any-cold-directory",
        "Check, backup and purge refuse the cold directory of another log.",
        "keep/directory.py",
        "    except ForeignDirectory:\n        raise\n",
        "",
        (f"{_CONTRACT}::test_verbs_obey_it",),
    ),
    Mutation(
        "go-on-elsewhere",
        "A server whose directory was replaced or moved away stops acknowledging within 5 s, and says so.",
        "node/node.py",
        "        if self._home.keep() and self._engine.journal.is_in_place():\n            return True\n",
        "        return True\n",
        (f"{_CONTRACT}::test_a_server_whose_directory_is_replaced_acknowledges_nothing", _WATCH),
    ),
    Mutation(
        "look-only-at-the-directory",
        "A server whose journal was taken away stops acknowledging as well.",
        "node/node.py",
        "        if self._home.keep() and self._engine.journal.is_in_place():\n",
        "        if self._home.keep():\n",
        (f"{_WATCH}::test_writes_end",),
    ),
    Mutation(
        "check-point-into-another-directory",
        "Nothing is written into a directory that took the place of the server's.",
        "storage/home.py",
        "        if not self.has(path):\n",
        "        if False:\n",
        (f"{_WATCH}::test_nothing_is_touched_in_between",),
    ),
    Mutation(
        "lose-what-is-away",
        "Records are not announced as lost while the directory they lie in is away.",
        "log/seal/segment_store.py",
        "            if error.errno not in _FILE_IS_BAD or not self.is_reachable(self.path(number)):\n",
        "            if error.errno not in _FILE_IS_BAD:\n",
        (f"{_CONTRACT}::test_a_cold_directory_that_is_away_costs_no_record", _WATCH),
    ),
)
