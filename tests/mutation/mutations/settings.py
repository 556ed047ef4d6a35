"""What a server does about its settings and its keys, and when it starts."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_SETTINGS = "tests/contract/test_settings.py"
_RECOVERING = "tests/http/test_recovering.py"
_LINES = "tests/contract/test_log_lines.py"
_KEYS = "tests/contract/test_key_file.py"

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
    Mutation(
        "an-empty-file-asks-for-no-key",
        "With a file of keys, keys are asked for even if there is none in it.",
        "http/door/keys.py",
        "enabled=bool(keys) or settings.api_keys_file is not None",
        "enabled=bool(keys)",
        (f"{_KEYS}::test_an_empty_file_lets_nobody_in",),
    ),
    Mutation(
        "remember-requests-of-old-keys",
        "A key that was removed opens nothing any more, on connections that are open, too.",
        "http/app.py",
        "        self.server.context.known_requests.forget()\n",
        "",
        (f"{_KEYS}::test_sighup_reads_the_keys_again",),
    ),
    Mutation(
        "leave-the-streams-of-a-removed-key",
        "Streams and sockets of a removed key end.",
        "http/door/keys.py",
        "        for key in before.values():\n            key.revoke()\n",
        "",
        (f"{_KEYS}::test_streams_of_a_removed_key_end_and_those_of_others_go_on",),
    ),
    Mutation(
        "end-all-streams-on-a-reload",
        "SIGHUP leaves alone whatever belongs to keys that stay.",
        "http/door/keys.py",
        "            same = before.pop(key.rights, key)\n",
        "            same = key\n",
        (f"{_KEYS}::test_streams_of_a_removed_key_end_and_those_of_others_go_on",),
    ),
    Mutation(
        "refuse-requests-that-come-early",
        "A data request that comes while the server recovers is held for up to 2 s, at most 1000 at a time.",
        "http/door/readiness.py",
        "        if not self._has_room(len(exchange.body)):\n            raise self.refusal()\n",
        "        raise self.refusal()\n",
        (f"{_RECOVERING}::test_a_request_that_comes_early_is_answered_when_recovery_is_over",),
    ),
    Mutation(
        "let-any-number-wait",
        "What waits for the end of recovery is bounded, in number and in bytes.",
        "http/door/readiness.py",
        "        if len(self._held) < MOST_HELD and self._held_bytes + body_bytes <= self._most_bytes:\n",
        "        if True:\n",
        (_RECOVERING,),
    ),
    Mutation(
        "listen-before-there-is-an-answer",
        "On an empty directory a server is ready when it can be connected to.",
        "http/app.py",
        "        if self.node.is_new:\n",
        "        if False:\n",
        (f"{_RECOVERING}::test_an_empty_directory_is_ready_when_it_can_be_connected_to",),
    ),
    Mutation(
        "log-requests-of-nobody",
        "The access log names the client's address and the key, and never shows the key.",
        "http/wire/request_log.py",
        '        "client": request.client(),\n',
        "",
        (f"{_LINES}::test_the_access_log_names_client_and_key_and_never_the_key",),
    ),
    Mutation(
        "stop-without-a-word",
        "The log says which signal ended the server, and what was flushed.",
        "http/server.py",
        "        self.stop_reason = self.stop_reason or reason\n",
        "",
        (f"{_LINES}::test_people_read_the_same_in_one_line",),
    ),
)
