"""Write the table of routes in docs/api.md from the routes; with --check, fail if it is not current.

    python scripts/api_reference.py
    python scripts/api_reference.py --check

The last column is `about` of the operation in src/topics/http/openapi.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from topics.core import Settings
from topics.http.admission.auth import SCOPES
from topics.http.app import Application
from topics.http.routing import Route

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
SOURCE = ROOT / "src" / "topics" / "http" / "openapi.json"
HEAD = "| Method | Path | Scope | About |\n|---|---|---|---|\n"
# The files of the console are pages, and no part of the OpenAPI document.
PAGES = {
    "GET /": "[the console](console.md)",
    "GET /console.js": "its script",
    "GET /console.css": "its style",
    "GET /console.svg": "its picture",
}


def routes() -> list[Route]:
    with tempfile.TemporaryDirectory() as folder:
        return list(Application(Settings(data_dir=folder)).server.routes)


def page(text: str, routes: Iterable[Route]) -> str:
    """Return the page with a current table."""
    before, _, after = text.partition(HEAD)
    return before + HEAD + "\n".join(_rows(routes)) + "\n\n" + after.partition("\n\n")[2]


def _rows(routes: Iterable[Route]) -> Iterator[str]:
    """The rows, in the order of the operations in the file."""
    by_name = {f"{route.method} {route.template}": route for route in routes}
    operations = json.loads(SOURCE.read_text())["operations"]
    operations |= {name: {"about": about} for name, about in PAGES.items()}
    for name, operation in operations.items():
        route = by_name.pop(name)
        yield f"| {route.method} | `{route.template}` | {_scope(route, operation)} | {operation['about']} |"
    if by_name:
        raise SystemExit(f"no operation in {SOURCE.name}: {', '.join(by_name)}")


def _scope(route: Route, operation: dict[str, Any]) -> str:
    scopes = [name for name, bit in SCOPES.items() if route.scopes & bit]
    return "none" if route.public else "+".join(scopes) or str(operation.get("key", "any key"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    text = PAGE.read_text()
    current = page(text, routes())
    if current == text:
        return 0
    if is_check:
        print("docs/api.md is not current: run scripts/api_reference.py")
        return 1
    PAGE.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
