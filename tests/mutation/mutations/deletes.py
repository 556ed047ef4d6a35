"""What deletes promise to those who ask for them: look first, and lose no more than was meant."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_WALK = "tests/model/test_engine_against_model.py::test_walk"

MUTATIONS = (
    Mutation(
        "take-seqs-whatever-their-tag",
        "A delete takes what all of its conditions name, and nothing else.",
        "log/remove/deletion.py",
        "    if match is None:\n        return sorted(",
        "    if True:\n        return sorted(",
        ("tests/log/remove/test_deletion.py", _WALK),
    ),
    Mutation(
        "foresee-another-floor",
        "A dry run says exactly what the delete then does.",
        "log/remove/deletion.py",
        "            if gone is not None:\n                np.frombuffer(marks, np.uint8)[gone] = 1\n",
        "",
        ("tests/log/remove/test_search.py", _WALK),
    ),
    Mutation(
        "delete-in-a-dry-run",
        "A dry run deletes nothing.",
        "http/routes/records/deletes.py",
        "        if body.dry_run:\n",
        "        if False:\n",
        ("tests/contract/test_aimed_deletes.py",),
    ),
)
