"""The console, and what only it asks for."""

from __future__ import annotations

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "let-the-console-load-anything",
        "The page at / runs its own script and nothing else.",
        "http/console/page.py",
        """    b"default-src 'none'; script-src 'self';""",
        """    b"default-src *; script-src 'unsafe-inline' *;""",
        ("tests/http/console/test_page.py",),
    ),
    Mutation(
        "tell-a-key-of-foreign-losses",
        "What needs attention is told to a key only of its own names.",
        "http/console/attention.py",
        "            if key is not None and not all(map(key.allows, _names(item))):\n",
        "            if False:\n",
        ("tests/http/console/test_overview.py",),
    ),
    Mutation(
        "forget-that-readers-were-told",
        "A loss that reached a reader is seen on the first screen for a day.",
        "log/totals.py",
        "        self.losses_told.note(topic, reason, missed)\n",
        "",
        ("tests/http/console/test_overview.py",),
    ),
    Mutation(
        "draw-a-part-as-if-all-were-live",
        "A part of a topic has the same gaps as the whole of it.",
        "log/read/buckets.py",
        "        first, last = max(run.base, topic.floor, base), min(run.last, head)\n",
        "        first, last = max(run.base, topic.floor, base + 1), min(run.last, head)\n",
        ("tests/contract/test_ledger.py",),
    ),
    Mutation(
        "change-a-configuration-in-a-dry-run",
        "A dry run of a configuration changes nothing.",
        "http/routes/topics.py",
        "            self._preview_put(exchange, config, warnings)\n            return\n",
        "            pass\n",
        ("tests/contract/test_second_thoughts.py",),
    ),
)
