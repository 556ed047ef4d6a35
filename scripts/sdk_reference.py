"""Writes docs/sdk-reference.md from the SDK: signatures and docstrings as they stand in the code.

python scripts/sdk_reference.py            writes the page
python scripts/sdk_reference.py --check    fails when the page is not the one it would write
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

import topics
from topics.client.operations.settings import LogSettings, TopicSettings

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sdk-reference.md"

# Those whose methods a program calls.
CLASSES = ("Topics", "Topic", "Queue", "Job", "Worker", "Writer", "Cursor", "SqliteCursor")
MADE_BY_USERS = ("Topics", "Cursor", "SqliteCursor")
CURSORS = ("MemoryCursor", "FileCursor", "SqliteCursor", "ServerCursor")
VALUES = ("Record", "Draft", "Ack", "Lost", "Restarted", "Position", "Accepted", "Answer")
HEAD = """# Reference of the SDK

Made from the code by `scripts/sdk_reference.py`; [sdk.md](sdk.md) explains it by examples. Signatures are
those of the blocking surface. On asyncio the names are `AsyncTopics`, `AsyncTopic`, `AsyncQueue`, `AsyncJob`,
`AsyncWorker` and `AsyncWriter`, with the same arguments: methods are awaited, iterators are `async for`,
blocks are `async with`; `topic`, `queue`, `writer`, `worker` and `stop` stay plain.
"""


def _annotation(value: Any) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)  # modules in front of names
    return text.replace("'", "").replace('"', "").replace("~", "")


def _expanded(found: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters, with those that `**name: Unpack[...]` stands for, except settings of a topic."""
    shown = []
    for one in found.parameters.values():
        kind = get_args(one.annotation)[0] if one.kind is one.VAR_KEYWORD else LogSettings
        if kind in (LogSettings, TopicSettings):
            shown.append(one)
            continue
        for name, annotation in get_type_hints(kind).items():
            shown.append(inspect.Parameter(name, one.KEYWORD_ONLY, default=None, annotation=annotation))
    return shown


def signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    shown, stars = [], False
    for index, one in enumerate(_expanded(found)):
        if index == 0 and one.name == "self":
            continue
        is_plain = one.annotation is one.empty or one.kind is one.VAR_KEYWORD
        text = one.name if is_plain else f"{one.name}: {_annotation(one.annotation)}"
        if one.kind is one.VAR_KEYWORD:
            text = "**" + text
        elif one.kind is one.KEYWORD_ONLY and not stars:
            shown.append("*")
            stars = True
        if one.default is not one.empty:
            text += f" = {one.default!r}" if ":" in text else f"={one.default!r}"
        shown.append(text)
    result = found.return_annotation
    arrow = "" if result is found.empty or name[0].isupper() else f" -> {_annotation(result)}"
    return f"{name}({', '.join(shown)}){arrow}"


def _text(thing: Any) -> str:
    """The docstring as one paragraph a line; none if it is only inherited."""
    doc = thing.__doc__ if not isinstance(thing, type) else thing.__dict__.get("__doc__")
    if not doc or (isinstance(thing, type) and doc.startswith(f"{thing.__name__}(")):
        return ""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(doc).split("\n\n"))


def _own_members(kind: type) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(kind).items() if not name.startswith("_")]


def _class(name: str) -> str:
    kind = getattr(topics, name)
    lines = [f"## {name}", ""]
    if name in MADE_BY_USERS:
        lines += ["```", signature(name, kind.__init__), "```", ""]
    lines += [_text(kind), ""]
    for member, value in _own_members(kind):
        if issubclass(kind, topics.Cursor) and kind is not topics.Cursor and hasattr(topics.Cursor, member):
            continue
        if isinstance(value, property):
            returns = _annotation(inspect.signature(value.fget).return_annotation)
            lines += [f"- `{member}: {returns}`{_after(value)}"]
        elif callable(value):
            lines += [f"- `{signature(member, value)}`{_after(value)}"]
    return "\n".join(lines).rstrip() + "\n"


def _after(thing: Any) -> str:
    text = _text(thing).replace("\n\n", " ")
    return f": {text[0].lower() + text[1:] if not text.startswith(('`', 'JSON')) else text}" if text else ""


def _values() -> str:
    lines = ["## Values", "", "| Name | Attributes | |", "|---|---|---|"]
    for name in VALUES:
        kind = getattr(topics, name)
        fields = (
            [one.name for one in msgspec.structs.fields(kind)] if issubclass(kind, msgspec.Struct) else []
        )
        more = [member for member, value in _own_members(kind) if isinstance(value, property)]
        listed = ", ".join(f"`{one}`" for one in [*fields, *more])
        lines.append(f"| `{name}` | {listed} | {_text(kind)} |")
    return "\n".join(lines) + "\n"


def _cursors() -> str:
    lines = ["## Cursors that there are", ""]
    for name in CURSORS:
        kind = getattr(topics, name)
        lines.append(f"- `{signature(name, kind.__init__)}`{_after(kind)}")
    return "\n".join(lines) + "\n"


def _errors() -> str:
    lines = ["## Errors", "", "| Name | Is a | Attributes | |", "|---|---|---|---|"]
    for name in sorted(topics.__all__):
        kind = getattr(topics, name)
        if not (isinstance(kind, type) and issubclass(kind, topics.TopicsError)):
            continue
        taken = inspect.signature(kind.__init__).parameters if "__init__" in vars(kind) else {}
        named = [one for one in taken if re.search(rf"self\.{one}\b", inspect.getsource(kind.__init__))]
        named += [member for member, value in _own_members(kind) if isinstance(value, property)]
        base = "" if kind.__bases__[0] is Exception else f"`{kind.__bases__[0].__name__}`"
        listed = ", ".join(f"`{one}`" for one in named)
        lines.append(f"| `{name}` | {base} | {listed} | {_text(kind).replace(chr(10) * 2, ' ')} |")
    return "\n".join(lines) + "\n"


def _settings() -> str:
    lines = [
        "## Settings",
        "",
        "What `topic`, `queue`, `create` and `configure` take; [api.md](api.md) says what each does.",
        "",
    ]
    for name, kind in get_type_hints(TopicSettings).items():
        choices = ", ".join(
            f"`{choice!r}`" for choice in getattr(kind, "__args__", ()) if isinstance(choice, str)
        )
        lines.append(f"- `{name}`: {choices or f'`{_annotation(kind)}`'}")
    return "\n".join(lines) + "\n"


def reference() -> str:
    parts = [HEAD, *(_class(name) for name in CLASSES), _cursors(), _values(), _errors(), _settings()]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        return 0 if PAGE.read_text() == reference() else 1
    PAGE.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
