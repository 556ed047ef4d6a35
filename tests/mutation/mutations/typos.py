"""What a typo must not do: be passed over in silence."""

from __future__ import annotations

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "pass-over-unknown-keys",
        "A key that no route knows is refused, and nothing is done.",
        "values/forms.py",
        "            if misnamed:\n                note(misnamed)\n",
        "            pass\n",
        ("tests/values/test_forms.py", "tests/contract/test_typos.py"),
    ),
    Mutation(
        "take-the-last-of-two-keys",
        "A key that comes twice in one object is refused.",
        "values/forms.py",
        '    if text.count(b":") == different:\n        return True\n',
        "    if text:\n        return True\n",
        ("tests/values/test_forms.py", "tests/log/write/test_append_form.py"),
    ),
    Mutation(
        "pass-over-unknown-parameters",
        "A query parameter that no route knows is refused, and nothing is done.",
        "http/wire/pipeline.py",
        "            if _QUERY in exchange.target:\n                exchange.note_query()\n",
        "",
        ("tests/contract/test_typos.py",),
    ),
    Mutation(
        "refuse-a-large-write-before-reading-it",
        "A large write is refused for what a small one would be, and told of its unknown keys.",
        "log/write/large_json.py",
        "            self._too_large = self._limits.too_large(index)\n",
        "            raise self._limits.too_large(index)\n",
        ("tests/contract/test_large_bodies.py::test_a_large_write_is_refused_for_what_a_small_one_would_be",),
    ),
)
