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
    Mutation(
        "forget-when-records-went",
        "When records went is known after a restart.",
        "log/topic.py",
        'gone_times=b"" if self.gone_times is None else self.gone_times.pack(),',
        'gone_times=b"",',
        ("tests/log/remove/test_gone_times.py",),
    ),
    Mutation(
        "date-what-an-older-server-lost",
        "What had gone before times were kept is said to have gone by then, and not at that time.",
        "log/topic.py",
        "self._last_missing(state.unsealed_dead), 0, captured_ms)",
        "self._last_missing(state.unsealed_dead), captured_ms, captured_ms)",
        ("tests/log/remove/test_gone_times.py",),
    ),
)
