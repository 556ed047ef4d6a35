"""How `openapi.json` is laid out, so that two people who edit it write the same text.

python -m tests.http.openapi.layout      lays it out again
"""

from __future__ import annotations

import json
from typing import Any

from topics.http.routes.probes import DOCUMENT

METHODS = ("get", "put", "post", "delete")
WIDTH = 110


def laid_out(document: dict[str, Any]) -> str:
    """Two spaces for each level; what fits in a line is one line, but not the paths and the components."""
    return _text(_ordered(document), 0) + "\n"


def _ordered(document: dict[str, Any]) -> dict[str, Any]:
    """Paths and components by name, methods as they are usually told, answers by status."""
    paths = {
        path: {method: _by_status(operations[method]) for method in METHODS if method in operations}
        for path, operations in sorted(document["paths"].items())
    }
    components = {kind: dict(sorted(found.items())) for kind, found in sorted(document["components"].items())}
    return document | {"paths": paths, "components": components}


def _by_status(operation: dict[str, Any]) -> dict[str, Any]:
    return operation | {"responses": dict(sorted(operation["responses"].items()))}


def _text(value: Any, depth: int, before: int = 0) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, (dict, list)) or (depth > 3 and before + len(line) < WIDTH):
        return line
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, list):
        parts = [_text(one, depth + 1, len(inner)) for one in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}]"
    parts = []
    for name, one in value.items():
        label = f"{inner}{json.dumps(name, ensure_ascii=False)}: "
        parts.append(label + _text(one, depth + 1, len(label)))
    return "{\n" + ",\n".join(parts) + f"\n{outer}}}"


if __name__ == "__main__":
    DOCUMENT.write_text(laid_out(json.loads(DOCUMENT.read_text())))
