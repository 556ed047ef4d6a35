"""What a server does about its settings."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_SETTINGS = "tests/contract/test_settings.py"

MUTATIONS = (
    Mutation(
        "take-the-default-instead",
        "A setting that cannot be read stops the start.",
        "values/settings_reader.py",
        "            self._refuse(name, text, where)\n            return\n",
        "            return\n",
        (f"{_SETTINGS}::test_a_value_that_cannot_be_read_stops_the_start",),
    ),
    Mutation(
        "overlook-a-misspelled-setting",
        "A setting that does not exist stops the start, with the name that was probably meant.",
        "values/settings_reader.py",
        "                self._mistakes.append(_unknown(wanted, map(variable, _KNOWN)))\n",
        "                pass\n",
        (f"{_SETTINGS}::test_a_name_that_does_not_exist_stops_the_start",),
    ),
    Mutation(
        "let-the-last-source-win",
        "Flags win over the environment, and the environment over topics.toml.",
        "values/settings_reader.py",
        "        if name not in self._origins:\n",
        "        if True:\n",
        (f"{_SETTINGS}::test_flags_environment_file",),
    ),
)
