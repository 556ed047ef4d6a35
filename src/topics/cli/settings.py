"""Where a verb's settings come from: its flags, the environment, and the file that one of them names."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topics.cli.parser import any_bytes
from topics.core import ConfigError, Configuration, SettingsReader, variable

# Settings that have a flag, and what it says about itself.
_FLAGS = {
    "host": "address to listen on",
    "port": "port, 0 lets the system choose",
    "data_dir": "where everything is kept",
    "config": "a topics.toml with settings",
}
_PATHS = ("data_dir", "config")


def add_flags(parser: argparse.ArgumentParser) -> None:
    for name, help_text in _FLAGS.items():
        kind = any_bytes if name in _PATHS else str
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{help_text} ({variable(name)})")


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    flags = {name: getattr(arguments, name) for name in _FLAGS}
    return {name: value for name, value in flags.items() if value is not None}


def read_settings(
    arguments: argparse.Namespace | None = None, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Raises ConfigError with a line for each mistake."""
    reader = SettingsReader()
    if arguments is not None:
        reader.read_flags(_given(arguments))
    reader.read_environment(os.environ if environment is None else environment)
    if reader.config is not None:
        reader.read_file(reader.config, _read_toml(reader.config))
    return reader.configuration()


def environment_with(arguments: argparse.Namespace) -> dict[str, str]:
    """The environment of a child that is to have the same settings."""
    return {**os.environ, **{variable(name): value for name, value in _given(arguments).items()}}


def _read_toml(path: str) -> dict[str, Any]:
    # Most servers have no such file.
    import tomllib

    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{variable('config')}: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable('config')}: {path} is not TOML: {error}") from None
