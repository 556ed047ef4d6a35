"""`topics key new`: a new API key, as the secret for a client and a line for the server's key file.

The server reads the file that TOPICS_API_KEYS_FILE names when it starts, and again on SIGHUP. The line holds
only a digest: a reader of the file cannot use the key. The secret itself is shown this one time.
"""

import argparse
import re
import secrets
from hashlib import sha256
from typing import Any

from topics.cli.errors import refuse_empty
from topics.cli.output import add_json, show
from topics.cli.parser import add_actions, add_verb
from topics.core import KEY_NAME, OF_KEY_NAMES, SCOPES_BY_WORD, UserMistake, nearest, parse_key_file

# What names of topics and routers begin with.
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")


def add_parser(verbs: Any) -> None:
    actions = add_actions(verbs, "key", "Make API keys.")
    parser = add_verb(actions, "new", run, __doc__, text="make a key")
    parser.add_argument("--name", help="what the server's log calls it")
    parser.add_argument(
        "--scopes", help="what it may do: read, write, delete, admin, joined with + (all of them)"
    )
    parser.add_argument("--prefixes", help="beginnings of the names it may use, joined with | (all names)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("name", "scopes", "prefixes")}
    for name, value in given.items():
        refuse_empty(f"--{name}", value)  # the key might do more than was meant
    secret, line = make_key(**{name: value for name, value in given.items() if value is not None})
    show({"secret": secret, "line": line}, f"secret: {secret}\nline: {line}", as_json=arguments.json)
    return 0


def make_key(name: str = "", scopes: str = "", prefixes: str = "") -> tuple[str, str]:
    """A new secret, and the line for the file that lets it in. Fields are written as in an entry."""
    if name and not KEY_NAME.fullmatch(name):
        raise UserMistake(f"a name has {OF_KEY_NAMES}")
    for word in filter(None, scopes.split("+")):
        _check_scope(word)
    for prefix in filter(None, prefixes.split("|")):
        if not _PREFIX.fullmatch(prefix):
            raise UserMistake(f'no name can begin with "{prefix}"')
    # A beginning of its own, so that no secret looks like an option, and leaked ones can be searched for.
    secret = "tk_" + secrets.token_urlsafe(32)
    fields = [f"{name}=sha256" if name else "sha256", sha256(secret.encode()).hexdigest()]
    fields += [scopes, prefixes] if prefixes else [scopes] if scopes else []
    line = ":".join(fields)
    # Read back as a server will read it, so that no line is handed out that stops a start.
    parse_key_file(line)
    return secret, line


def _check_scope(word: str) -> None:
    if word.lower() not in SCOPES_BY_WORD:
        meant = nearest(word, [each for each in SCOPES_BY_WORD if len(each) > 1])
        question = "" if meant is None else f"; did you mean {meant}?"
        raise UserMistake(f'there is no scope "{word}"{question}')
