"""Reads settings: flags win over the environment, the environment over topics.toml, and that over defaults.

Nothing is guessed. A value that cannot be read, and a name that does not exist, is a mistake; all of them are
told at once, a line each, because a server that starts with another setting than the one that was meant does
harm that is noticed late.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from topics.core.errors import ConfigError
from topics.core.names import nearest
from topics.core.settings import Settings

PREFIX = "TOPICS_"
# Read by clients, which may run where a server does.
CLIENT_VARIABLES = ("TOPICS_URL", "TOPICS_API_KEY", "TOPICS_KEY_FILE", "TOPICS_PROFILE")
# For tests and benchmarks; and what Kubernetes tells containers about a service that is called topics.
_NOT_OURS = re.compile(r"TOPICS_(TEST_|BENCH_|SERVICE_|PORT_\d+_)")
_KUBERNETES_PORT = "tcp://"
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_SHOWN = 40
_KNOWN = {known.name: known for known in fields(Settings)}


def variable(name: str) -> str:
    return PREFIX + name.upper()


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: Settings
    # Where each came from: flag, environment, file or default.
    origins: dict[str, str]
    # What is no mistake, and still worth a line.
    warnings: list[str]

    def shown(self, name: str) -> Any:
        """Its value, but never a secret."""
        value = getattr(self.settings, name)
        return value if _KNOWN[name].repr else "(not shown)" if value else None


class SettingsReader:
    """Ask the sources in their order: what the first one says, the others cannot change."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._origins: dict[str, str] = {}
        self._mistakes: list[str] = []
        self._warnings: list[str] = []
        self._has_client_key = False

    def read_flags(self, given: Mapping[str, str]) -> None:
        for name, text in given.items():
            self._take("flag", name, text, f"--{name.replace('_', '-')} ({variable(name)})")

    def read_environment(self, environment: Mapping[str, str]) -> None:
        self._has_client_key = "TOPICS_API_KEY" in environment
        for wanted, text in environment.items():
            if not wanted.startswith(PREFIX):
                continue
            name = wanted.removeprefix(PREFIX).lower()
            if wanted == variable("port") and text.startswith(_KUBERNETES_PORT):
                self._warnings.append(f"{wanted} is ignored: {_quoted(text)} comes from Kubernetes")
            elif name in _KNOWN and wanted == variable(name):
                self._take("environment", name, text, wanted)
            elif wanted not in CLIENT_VARIABLES and not _NOT_OURS.match(wanted):
                self._mistakes.append(_unknown(wanted, map(variable, _KNOWN)))

    def read_file(self, path: str, content: Mapping[str, object]) -> None:
        """`content`: a TOML document, whose values may also be written as text."""
        for name, value in content.items():
            if name not in _KNOWN or name == "config":
                known = (each for each in _KNOWN if each != "config")
                self._mistakes.append(f"{path}: " + _unknown(name, known))
                continue
            where = f"{path}: {name} ({variable(name)})"
            if isinstance(value, bool):
                self._take("file", name, str(value).lower(), where)
            elif isinstance(value, str) or (isinstance(value, int) and not _is_text(name)):
                self._take("file", name, str(value), where)
            else:
                self._refuse(name, value, where)

    @property
    def config(self) -> str | None:
        """The file that the sources so far have named."""
        path: str | None = self._values.get("config")
        return path

    def _take(self, origin: str, name: str, text: str, where: str) -> None:
        try:
            value = parse(name, text)
        except ValueError:
            self._refuse(name, text, where)
            return
        if name not in self._origins:
            self._values[name] = value
            self._origins[name] = origin

    def _refuse(self, name: str, value: object, where: str) -> None:
        shown = _quoted(value) if _KNOWN[name].repr else "this"
        self._mistakes.append(f"{where}: {shown} is not {_wanted(name)}")

    def configuration(self) -> Configuration:
        """Raises all mistakes, a line each."""
        if self._mistakes:
            raise ConfigError("\n".join(self._mistakes))
        origins = {name: self._origins.get(name, "default") for name in _KNOWN}
        settings = Settings(**self._values)
        if self._has_client_key and not settings.api_keys and settings.api_keys_file is None:
            self._warnings.append("TOPICS_API_KEY is for clients; a server asks for those in TOPICS_API_KEYS")
        return Configuration(settings, origins, self._warnings)


def parse(name: str, text: str) -> Any:
    """The value that a text stands for; ValueError when it stands for none."""
    known = _KNOWN[name]
    word = text.strip().lower()
    if known.type is bool:
        if word not in _ON + _OFF:
            raise ValueError
        return word in _ON
    if "words" in known.metadata:
        if word not in known.metadata["words"]:
            raise ValueError
        return word
    if "least" in known.metadata:
        # int() alone would take signs, blanks, underscores and the digits of other scripts.
        if not (word.isascii() and word.isdecimal() and len(word) < 20):
            raise ValueError
        number = int(word)
        if not known.metadata["least"] <= number <= known.metadata["most"]:
            raise ValueError
        return number
    if known.type is not str:
        return text or None
    if name == "data_dir" and not text:
        raise ValueError
    return text


def _is_text(name: str) -> bool:
    known = _KNOWN[name]
    return known.type is not bool and "least" not in known.metadata


def _wanted(name: str) -> str:
    known = _KNOWN[name]
    if known.type is bool:
        return f"one of {', '.join(_ON)} or {', '.join(_OFF)}"
    if "words" in known.metadata:
        return "one of " + ", ".join(known.metadata["words"])
    if "least" in known.metadata:
        return f"a whole number from {known.metadata['least']} to {known.metadata['most']}"
    return "a path" if name == "data_dir" else "text in quotes"


def _unknown(name: str, known: Iterable[str]) -> str:
    # Without what all variables have in common: it would make every two of them alike.
    bare = {each.removeprefix(PREFIX): each for each in known}
    meant = nearest(name.removeprefix(PREFIX), bare)
    question = "`topics config` lists them all" if meant is None else f"did you mean {bare[meant]}?"
    return f"{_shown(name)}: there is no such setting; {question}"


def _shown(text: str) -> str:
    """Names are shown as they are, unless they could break the line."""
    return text if text.isprintable() else _quoted(text)


def _quoted(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=not str(value).isprintable())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
