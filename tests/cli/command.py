"""The command line, called as people type it."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock

from topics.cli.main import main


class Outcome:
    def __init__(self, code: int, output: str, errors: str) -> None:
        self.code = code
        self.output = output
        self.errors = errors

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    @property
    def rows(self) -> list[Any]:
        """An object a line."""
        return [json.loads(line) for line in self.output.splitlines()]


def topics(*arguments: object, given: str = "", heard_within_s: float = 60.0, **environment: str) -> Outcome:
    """In this process: starting one takes longer than most of what the verbs have to do.

    A machine that does much else may keep a server silent for longer than the second that people wait.
    """
    output, errors = io.StringIO(), io.StringIO()
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")} | environment
    with (
        mock.patch.dict(os.environ, clean, clear=True),
        mock.patch("sys.stdin", io.StringIO(given)),
        mock.patch("topics.cli.remote.client.HEARD_WITHIN_S", heard_within_s),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return Outcome(code, output.getvalue(), errors.getvalue())


def refused(*arguments: object, **environment: str) -> str:
    """What it says to a mistake: one line."""
    outcome = topics(*arguments, **environment)
    assert outcome.code == 2, outcome.output + outcome.errors
    assert outcome.output == ""
    assert outcome.errors.startswith("topics: ")
    assert outcome.errors.count("\n") == 1, outcome.errors
    return outcome.errors.removeprefix("topics: ").strip()
