"""`topics key new`."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.cli.command import refused, topics
from topics.cli.key import make_key
from topics.core.key_entries import SCOPES, parse_key_file, parse_keys


def test_a_secret_for_the_client_and_a_line_for_the_server() -> None:
    outcome = topics("key", "new", "--name", "ci", "--scopes", "read+write", "--prefixes", "a.|b.")
    assert (outcome.code, outcome.errors) == (0, "")
    first, second = outcome.output.splitlines()
    secret, line = first.removeprefix("secret: "), second.removeprefix("line: ")
    assert line == f"ci=sha256:{sha256(secret.encode()).hexdigest()}:read+write:a.|b."
    assert outcome.output.count(secret) == 1


def test_as_json() -> None:
    told = topics("key", "new", "--json").json
    assert told["line"] == f"sha256:{sha256(told['secret'].encode()).hexdigest()}"
    assert topics("key", "new", "--json").json["secret"] != told["secret"]


@pytest.mark.parametrize("flag", ["--name", "--scopes", "--prefixes"])
def test_what_is_empty_is_not_everything(flag: str) -> None:
    """A variable of a script that is not set must not make a key that may do anything."""
    assert refused("key", "new", flag, "") == f"{flag} is empty"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--name", "my laptop"), "a name has"),
        (("--scopes", "read+delet"), "did you mean delete?"),
        (("--prefixes", "a. |b"), 'no name can begin with "a. "'),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, str], told: str) -> None:
    assert told in refused("key", "new", *arguments)


@pytest.mark.parametrize("name", ["", "ci", "backup@host-1.eu_x"])
@pytest.mark.parametrize(
    ("scopes", "parsed"), [("", frozenset(SCOPES)), ("read+w", {"read", "write"}), ("RW", {"read", "write"})]
)
@pytest.mark.parametrize("prefixes", ["", "a.", "a:|b>c"])
def test_a_new_key_is_let_in_by_its_line(name: str, scopes: str, parsed: set[str], prefixes: str) -> None:
    secret, line = make_key(name, scopes, prefixes)
    assert secret not in line
    (entry,) = parse_key_file(line)
    assert entry.digest == sha256(secret.encode()).digest()
    assert entry.name == (name or entry.digest.hex()[:8])
    assert entry.scopes == parsed
    assert entry.prefixes == tuple(filter(None, prefixes.split("|")))
    # As an entry of the environment and behind `Bearer`, it needs no quoting.
    assert parse_keys(secret)[0].digest == entry.digest
    assert make_key()[0] != secret
