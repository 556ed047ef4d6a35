"""Pipelines as users declare them: a TOML file, or a Python file that builds the same objects.

    [pipeline.orders-lake]        pipelines = Declaration({
    kind = "archive"                  "orders-lake": Archive(topics=["orders"], table="lake/orders"),
    topics = ["orders"]           })
    table = "lake/orders"

Every mistake is one sentence that names what would be right.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

import msgspec

from pyspark_topics.errors import did_you_mean
from pyspark_topics.pipelines.archive import Archive
from pyspark_topics.pipelines.audit import Audit
from pyspark_topics.pipelines.context import NAME_RULE, Pipeline, check_table, run_file
from pyspark_topics.pipelines.erase import Erase
from pyspark_topics.pipelines.load import Load
from pyspark_topics.pipelines.object_store import unknown_options
from pyspark_topics.pipelines.replay import Replay
from pyspark_topics.pipelines.route import Route
from topics.core.names import is_topic_name

# By the word in a declaration.
KINDS: Mapping[str, type[Any]] = {one.kind: one for one in (Archive, Replay, Route, Load, Audit, Erase)}
STATE = "topics-pipelines"
# What a TOML file may say.
_TOP: Mapping[str, type[Any]] = {"url": str, "state": str, "spark": dict, "storage": dict, "pipeline": dict}
_EXAMPLES = {"spark": '"spark.executor.memory" = "2g"', "storage": 'aws_region = "eu-west-1"'}
# The name in a Python file.
VARIABLE = "pipelines"


class DeclarationError(ValueError):
    """Mistakes of a user in a declaration, a sentence each. The first is the message."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__(mistakes[0])
        self.mistakes = mistakes


@dataclass(frozen=True)
class Declaration:
    pipelines: Mapping[str, Pipeline]
    # None: whatever the command line or the environment says.
    url: str | None = None
    # Where checkpoints and notes are kept.
    state: str = STATE
    # Settings for the Spark session.
    spark: Mapping[str, str] = field(default_factory=dict)
    # Options of delta-rs, for tables and state in an object store.
    storage: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.pipelines:
            _check_pipeline_name(name)

    def chosen(self, names: list[str]) -> dict[str, Pipeline]:
        """Return the named pipelines; without names, those that follow topics. Jobs have to be named."""
        if names:
            return {name: self._named(name) for name in dict.fromkeys(names)}
        if len(self.pipelines) == 1:
            return dict(self.pipelines)
        following = {name: one for name, one in self.pipelines.items() if one.follows}
        if not following:
            raise DeclarationError(
                "every pipeline declared here is a job, which runs when it is named: "
                + (", ".join(self.pipelines) or "there is none")
            )
        return following

    def _named(self, name: str) -> Pipeline:
        if name not in self.pipelines:
            raise DeclarationError(f'there is no pipeline "{name}"; declared are: {_list(self.pipelines)}')
        return self.pipelines[name]


# A declaration without the pipelines that are wrong, and a sentence for each mistake.
_Read = tuple[Declaration, list[str]]


def read_declaration(path: Path) -> Declaration:
    """Return the declaration of a file; raise for the first mistake in it."""
    try:
        found, wrong = _read(path)
    except OSError as error:
        raise DeclarationError(_cannot_read(path, error)) from None
    if wrong:
        raise DeclarationError(f"{path}: {wrong[0]}")
    return found


def read_what_is_right(path: Path) -> _Read:
    """Return a declaration without the pipelines that are wrong, and a sentence for each mistake."""
    try:
        return _read(path)
    except OSError as error:
        return Declaration({}), [_cannot_read(path, error)]


def _cannot_read(path: Path, error: OSError) -> str:
    return f"cannot read {path}: {error.strerror}"


def _read(path: Path) -> _Read:
    try:
        return _from_python(path) if path.suffix == ".py" else _from_toml(path)
    except DeclarationError as error:
        return Declaration({}), list(error.mistakes)


def _each(
    entries: Mapping[str, Any], make: Callable[[str, Any], Pipeline]
) -> tuple[dict[str, Pipeline], list[str]]:
    """Make pipelines by name; return those that are right, and the mistakes of the others."""
    made: dict[str, Pipeline] = {}
    wrong: list[str] = []
    for name, entry in entries.items():
        try:
            _check_pipeline_name(name)
            made[name] = make(name, entry)
        except DeclarationError as error:
            wrong += error.mistakes
    return made, wrong


def _check_pipeline_name(name: str) -> None:
    if not is_topic_name(name):  # a pipeline's cursor at the server has its name
        raise DeclarationError(f'a pipeline cannot be called "{name}": {NAME_RULE}')


def _from_python(path: Path) -> _Read:
    if not path.is_file():
        raise DeclarationError("there is no such file")
    try:
        found = run_file(path).get(VARIABLE)
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationError(f"running it failed with {type(error).__name__}: {error}") from error
    if not isinstance(found, Declaration):
        raise DeclarationError(f"it has to set {VARIABLE} = Declaration(...)")
    made, wrong = _each(found.pipelines, lambda name, one: _checked(name, one, path.parent))
    return replace(found, pipelines=made), [*(sentence for _, sentence in _of_storage(found.storage)), *wrong]


def _checked(name: str, given: Any, folder: Path) -> Pipeline:
    """Like one of a TOML file: Python does not look at the types of what it is given."""
    kind = type(given)
    if kind in KINDS.values():
        settings = {one: getattr(given, one) for one in _fields(kind)}
        return build(kind, settings, f"pipeline {name}", folder)
    if isinstance(given, type) or not hasattr(given, "run"):  # anything that runs may be a kind of its own
        known = ", ".join(f"{one.__name__}(...)" for one in KINDS.values())
        raise DeclarationError(f"pipeline {name} has to be one of: {known}")
    own: Pipeline = given
    return own


def _from_toml(path: Path) -> _Read:
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeclarationError(f"this is not TOML: {error}") from None
    return _from_table(table, path.parent)


def from_table(table: Mapping[str, Any]) -> Declaration:
    found, wrong = _from_table(table, Path())
    if wrong:
        raise DeclarationError(*wrong)
    return found


def _from_table(table: Mapping[str, Any], folder: Path) -> _Read:
    """`folder` is where code named by a declaration is looked for."""
    mistakes = list(_of_the_file(table))
    right = {key: value for key, value in table.items() if key not in dict(mistakes)}
    pipelines, wrong = _each(right.get("pipeline", {}), lambda name, entry: _pipeline(name, entry, folder))
    spark, storage = (
        {key: _text(value) for key, value in right.get(name, {}).items()} for name in ("spark", "storage")
    )
    found = Declaration(pipelines, right.get("url"), right.get("state", STATE), spark, storage)
    return found, [*(sentence for _, sentence in mistakes), *wrong]


def _of_the_file(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield mistakes in settings of the file, with their names."""
    for key, value in table.items():
        if key not in _TOP:
            yield key, f"the file{_no_setting(key, _TOP)}"
        elif not isinstance(value, _TOP[key]):
            yield key, f"{key} has to be {'text' if _TOP[key] is str else 'a table'}"
        elif key in _EXAMPLES:
            for name, inner in value.items():
                if isinstance(inner, dict | list):
                    yield key, f'write "{name}" of [{key}] in quotes, as in {_EXAMPLES[key]}'
            if key == "storage":
                yield from _of_storage(value)
        elif key == "state":
            try:
                check_table(value, "state")
            except ValueError as error:
                yield key, str(error)


def _of_storage(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, hint in unknown_options(name for name, value in options.items() if not isinstance(value, dict)):
        yield f"storage.{name}", f'storage has no option "{name}"{hint}; its options are those of delta-rs'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pipeline(name: str, entry: object, folder: Path) -> Pipeline:
    where = f"pipeline {name}"
    if not isinstance(entry, dict):
        raise DeclarationError(f"{where} has to be a table, [pipeline.{name}]")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        given = "says no kind" if kind is None else f'is of kind "{kind}"'
        raise DeclarationError(f"{where} {given}; the kinds are: {_list(KINDS)}")
    settings = {key: value for key, value in entry.items() if key != "kind"}
    return build(KINDS[kind], settings, where, folder)


def _fields(kind: type[Any]) -> dict[str, msgspec.structs.FieldInfo]:
    """The settings that users may give."""
    return {one.name: one for one in msgspec.structs.fields(kind) if not one.name.startswith("_")}


def build(kind: type[Any], settings: Mapping[str, Any], where: str, folder: Path) -> Pipeline:
    """An object of this kind, its settings checked."""
    fields = _fields(kind)
    plain = {name: _plain(value) for name, value in settings.items()}
    mistakes = [f"{where}{said}" for said in _mistakes(fields, plain)]
    if mistakes:
        raise DeclarationError(*mistakes)
    # Kinds that load code remember where their declaration lies.
    place = {"_folder": str(folder)} if "_folder" in kind.__struct_fields__ else {}
    try:
        built: Pipeline = msgspec.convert({**plain, **place}, kind)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"{where}: {_plainly(str(error), fields)}") from None
    return built


def _mistakes(fields: Mapping[str, msgspec.structs.FieldInfo], given: Mapping[str, Any]) -> Iterator[str]:
    """Each setting looked at by itself; whether they go together is not asked yet."""
    unknown = list(_unknown(given, fields))
    yield from unknown
    for name, one in fields.items():
        if name in given:
            try:
                msgspec.convert(given[name], one.type)
            except msgspec.ValidationError as error:
                what, _, inside = str(error).partition(" - at `$")
                yield f": {_plainly(f'{what} - at `$.{name}{inside}', fields)}"
        # One that is misspelled is not missing, too.
        elif one.required and not any(f'did you mean "{name}"' in said for said in unknown):
            yield f' lacks "{name}"'


def _plain(value: Any) -> Any:
    """Times and paths as the text they stand for; TOML knows the former, Python has both."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _plainly(message: str, fields: Mapping[str, msgspec.structs.FieldInfo]) -> str:
    """msgspec's "Expected `str`, got `int` - at `$.table`" with the setting first, and what it may be."""
    what, _, place = message.partition(" - at `$.")
    name = place.rstrip("`")
    words = what.replace("`", "").replace("Expected", "expected")
    if "Invalid enum value" in what and name in fields:
        *others, last = _choices(fields[name].type)
        words = f"it has to be {', '.join(others)} or {last}"
    return f"{name}: {words}" if place else words


def _choices(kind: Any) -> list[str]:
    """The words of a Literal, also inside an optional one."""
    inner = get_args(kind)
    return [word for one in inner for word in ([one] if isinstance(one, str) else _choices(one))]


def _unknown(given: Mapping[str, Any], known: Any) -> Iterator[str]:
    for key in given:
        if key not in known:
            yield _no_setting(key, known)


def _no_setting(key: str, known: Any) -> str:
    return f' has no setting "{key}"{did_you_mean(key, known)}; it knows: {_list(known)}'


def _list(names: Any) -> str:
    return ", ".join(names) or "none"
