"""The flags of verbs that talk to a server, and the sources of its address and key without them."""

import argparse
import os
import re
import time
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

from topics.cli.errors import DEFAULT_URL, refuse_empty
from topics.cli.parser import any_bytes
from topics.cli.remote.client import connect
from topics.client.sync import Topics
from topics.core import UserMistake, did_you_mean

PROFILES = "~/.config/topics.toml"
_PROFILE_KEYS = ("url", "key_file")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIRST_YEAR = 1970
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def add_flags(parser: argparse.ArgumentParser, *, wait: bool = True) -> None:
    about = parser.add_argument_group("the server")
    about.add_argument("--url", help=f"its address (TOPICS_URL, {DEFAULT_URL})")
    about.add_argument(
        "--key-file", type=any_bytes, metavar="FILE", help="a file with the API key (or TOPICS_API_KEY)"
    )
    about.add_argument("--profile", metavar="NAME", help=f"one of {PROFILES} (TOPICS_PROFILE)")
    if wait:
        about.add_argument("--wait", type=seconds, metavar="SECONDS", help="wait so long for it")
    parser.add_argument("--json", action="store_true", help="an object a line, as in a pipe")


def given_flags(arguments: argparse.Namespace) -> list[str]:
    """The given flags of `add_flags`, for a command that continues this one."""
    given = {"--url": arguments.url, "--key-file": arguments.key_file, "--profile": arguments.profile}
    return flags_of(given) + ["--json"] * arguments.json


def flags_of(values: dict[str, Any]) -> list[str]:
    """The words of flags with their values; None is not given."""
    return [word for flag, value in values.items() if value is not None for word in (flag, str(value))]


def client_for(arguments: argparse.Namespace, **patience: Any) -> Topics:
    """Return a client of the server that the flags, the environment or a profile name."""
    refuse_empty("--url", arguments.url)
    refuse_empty("--key-file", arguments.key_file)
    chosen = arguments.profile
    if chosen is None and not arguments.url and not os.environ.get("TOPICS_URL"):
        chosen = os.environ.get("TOPICS_PROFILE") or None
    profile = {} if chosen is None else _profile(chosen)
    if arguments.url and arguments.url.rstrip("/") != profile.get("url", arguments.url).rstrip("/"):
        profile = {}  # its key must not go to another address
    url = arguments.url or profile.get("url") or os.environ.get("TOPICS_URL") or DEFAULT_URL
    return connect(url, _key(arguments.key_file, profile), wait_s=arguments.wait, **patience)


def _key(flag: str | None, profile: dict[str, str]) -> str | None:
    named = flag or profile.get("key_file")
    if named is None:
        key = os.environ.get("TOPICS_API_KEY")
        if key:
            return key
        named = os.environ.get("TOPICS_KEY_FILE")
    if not named:
        return None
    path = Path(named).expanduser()
    try:
        text = path.read_text("utf-8", "surrogateescape").strip()
    except OSError as error:
        raise UserMistake(f"cannot read the key in {path}: {error.strerror}") from None
    if not text:
        raise UserMistake(f"there is no key in {path}")
    return text


def profile_names() -> list[str]:
    """The names of profiles for completion; none if the file cannot be read."""
    try:
        return list(_profiles(""))
    except UserMistake:
        return []


def _profiles(wanted: str) -> dict[str, Any]:
    path = Path(PROFILES).expanduser()
    try:
        profiles = tomllib.loads(path.read_text("utf-8")).get("profiles", {})
    except OSError as error:
        raise UserMistake(f'there is no profile "{wanted}": cannot read {path}: {error.strerror}') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} is not TOML: {error}") from None
    return profiles if isinstance(profiles, dict) else {}


def _profile(name: str) -> dict[str, str]:
    path = Path(PROFILES).expanduser()
    profiles = _profiles(name)
    if not isinstance(profiles.get(name), dict):
        raise UserMistake(f"{path} has no [profiles.{name}]{did_you_mean(name, profiles)}")
    profile: dict[str, str] = profiles[name]
    for key, value in profile.items():
        if key not in _PROFILE_KEYS:
            raise UserMistake(
                f'{path}, [profiles.{name}]: there is no "{key}"{did_you_mean(key, _PROFILE_KEYS)}'
            )
        if not isinstance(value, str):
            raise UserMistake(f"{path}, [profiles.{name}]: {key} is not a text")
    if "key_file" in profile:
        # Relative to the file that names it.
        profile["key_file"] = str(path.parent / Path(profile["key_file"]).expanduser())
    return profile


# --- values of flags ----------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    try:
        value = milliseconds(text) / 1000 if _DURATION.fullmatch(text) else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def milliseconds(text: str) -> int:
    """`60s`, `10m`; a plain number is seconds."""
    match = _DURATION.fullmatch(text if not text.isdigit() else text + "s")
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration, which looks like 500ms, 60s, 10m, 2h or 7d"
        )
    return int(float(match[1]) * _UNITS_MS[match[2]])


def moment(text: str) -> int:
    """Milliseconds since 1970, before which there was nothing: of so long ago (`10m`), or of a time.

    A time is ISO; without a zone, it is that of here.
    """
    if _DURATION.fullmatch(text):
        return max(int(time.time() * 1000) - milliseconds(text), 0)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration (10m) nor a time (2026-07-01T12:00:00Z)"
        ) from None
    return max(int(when.timestamp() * 1000), 0) if when.year >= _FIRST_YEAR else 0


def natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def positive(text: str) -> int:
    if not natural(text):
        raise argparse.ArgumentTypeError("0 is none at all")
    return int(text)
