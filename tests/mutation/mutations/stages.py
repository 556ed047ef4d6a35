"""Stages: committed once, by their owner, and remembered within bounds."""

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "share-stages-among-tenants",
        "A key neither reads, replaces, commits nor drops parts that a key with other prefixes has staged.",
        "flow/stages/spool.py",
        'return f"{digest_of(owner)}-{digest_of(stage)}" if owner else digest_of(stage)',
        "return digest_of(stage)",
        ("tests/contract/test_stages.py", "tests/flow/stages/test_identities.py"),
    ),
    Mutation(
        "share-identities-among-tenants",
        "What a key commits neither uses up nor answers the identities of a key with other prefixes.",
        "flow/stages/identities.py",
        "        known = self._owners.get(owner)\n",
        '        known = self._owners.get(owner) or self._owners.get("a.")\n',
        ("tests/contract/test_stages.py", "tests/flow/stages/test_identities.py"),
    ),
    Mutation(
        "forget-commits-without-an-owner",
        "A writer that goes on after the upgrade neither repeats nor loses a batch.",
        "flow/stages/stages.py",
        "            oldest = oldest_unowned if oldest is None else oldest\n",
        "            known = None\n",
        ("tests/golden/test_edition1.py", "tests/flow/stages/test_identities.py"),
    ),
    Mutation(
        "show-commits-without-an-owner-to-all",
        "A commit from before there were owners is told only to a key that may name all its topics.",
        "flow/stages/identities.py",
        "            if all(may_name(written.topic) for written in commit.ranges):\n"
        "                yield commit\n",
        "            yield commit\n",
        ("tests/golden/test_edition1.py", "tests/flow/stages/test_identities.py"),
    ),
    Mutation(
        "take-an-old-batch-for-a-new-one",
        "A batch older than the last hundred is refused, never written a second time.",
        "flow/stages/stages.py",
        "if known is None and oldest is not None and request.batch < oldest:",
        "if False:",
        ("tests/contract/test_stages.py", "tests/flow/stages/test_identities.py"),
    ),
    Mutation(
        "forget-no-application",
        "Of commits so much is remembered and no more: the id unused longest is forgotten first.",
        "flow/stages/identities.py",
        "            if count <= MAX_APPLICATIONS and held <= MAX_REMEMBERED_BYTES:\n",
        "            if True:\n",
        ("tests/flow/stages/test_identities.py",),
    ),
    Mutation(
        "forget-another-one-after-a-restart",
        "A restart remembers the same commits as the process before it.",
        "flow/stages/identities.py",
        "        for name in owned.forgotten:\n            space.forget(name)\n",
        "        for _ in owned.forgotten:\n            space.forget(next(iter(space.applications)))\n",
        ("tests/flow/stages/test_identities.py",),
    ),
    Mutation(
        "take-an-unreadable-part-for-a-missing-one",
        "A repeat with other rows is refused, also when its rows cannot be read just now.",
        "flow/stages/spool.py",
        "    except FileNotFoundError:\n        # Nothing else",
        "    except OSError:\n        # Nothing else",
        ("tests/flow/stages/test_spool.py",),
    ),
)
