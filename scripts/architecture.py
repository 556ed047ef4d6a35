"""Draws docs/images/architecture.svg from the packages under src: their docstrings, and who imports whom.

    python scripts/architecture.py            writes the picture
    python scripts/architecture.py --check    fails when the picture is not the one it would write

A package lies above the packages that it imports, and an arrow means "imports". An arrow is left out where
others lead to the same package. The server's packages are on the left, those of its clients on the right.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
# What this package reaches is the server; what reaches it is above everything.
SERVER = "topics.http"

# Pixels.
WIDTH, MARGIN, GUTTER, ROW_GAP = 1000, 20, 56, 30
LEFT_WIDTH = 620
PAD, TITLE, LINE, INNER_GAP = 12, 18, 15, 10
# At most so many inner boxes side by side, so that their texts have room.
INNER_COLUMNS = 3
# How wide a letter of the small text is taken to be. Browsers differ; this is on the safe side.
LETTER = 6.6

STYLE = """
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #4b5563 }
  .name { font-weight: 600; font-size: 14px; fill: #111827 }
  .part { font-weight: 600; fill: #1f2937 }
  .room { fill: #eef2f7; stroke: #94a3b8 }
  .inner { fill: #ffffff; stroke: #cbd5e1 }
  .arrow { fill: none; stroke: #64748b; stroke-width: 1.5 }
  .tip { fill: #64748b }
  .page { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #b6c2d1 }
    .name { fill: #f3f4f6 }
    .part { fill: #e5e7eb }
    .room { fill: #1e2733; stroke: #55657a }
    .inner { fill: #141b24; stroke: #3d4b5c }
    .arrow { stroke: #8fa1b8 }
    .tip { fill: #8fa1b8 }
    .page { fill: #0d1117 }
  }
"""


# --- what there is ------------------------------------------------------------------------------------------


@dataclass
class Package:
    """A room of the house; `parts` are the packages inside it, by name."""

    name: str
    docstring: str
    parts: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        return self.name.removeprefix("topics.")


def first_sentence(name: str, docstring: str) -> str:
    """The first paragraph, without the name in front, which stands above it already."""
    sentence = " ".join(docstring.split("\n\n")[0].split()).rstrip(".:").replace("`", "")
    title, colon, rest = sentence.partition(": ")
    return rest[:1].upper() + rest[1:] if colon and title.lower() == name else sentence


def packages() -> dict[str, Package]:
    """All rooms: the packages inside `topics`, and every other package under src."""
    found = {}
    for init in sorted([*SRC.glob("topics/*/__init__.py"), *SRC.glob("[!t]*/__init__.py")]):
        name = ".".join(init.parent.relative_to(SRC).parts)
        docstring = _docstring(init)
        inner = {path.parent.name: _docstring(path) for path in sorted(init.parent.glob("*/__init__.py"))}
        # In the order in which the room's docstring names them.
        order = sorted(inner, key=lambda part: (_place(part, docstring), part))
        found[name] = Package(name, docstring, {part: inner[part] for part in order})
    for package in found.values():
        package.imports = {
            other for name in _imported(package) for other in found if _is_within(name, other)
        } - {package.name}
    return found


def _place(word: str, docstring: str) -> int:
    found = re.search(rf"\b{word}\b", docstring)
    return found.start() if found else len(docstring)


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _imported(package: Package) -> set[str]:
    names: set[str] = set()
    for path in (SRC / package.name.replace(".", "/")).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def reached(start: str, rooms: dict[str, Package]) -> set[str]:
    """Everything that a room imports, and what that imports, and so on."""
    found: set[str] = set()
    ahead = set(rooms[start].imports)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead |= rooms[name].imports
    return found


def arrows(rooms: dict[str, Package]) -> list[tuple[str, str]]:
    """Who imports whom, without what follows from other arrows."""
    return sorted(
        (name, target)
        for name, room in rooms.items()
        for target in room.imports
        if not any(target in reached(other, rooms) for other in room.imports - {target})
    )


def levels(rooms: dict[str, Package]) -> dict[str, int]:
    """0 for a room that imports no other; every room is above those that it imports."""
    found: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise SystemExit(f"packages import each other: {' -> '.join([*above, name])}")
        if name not in found:
            below = [level(target, (*above, name)) for target in sorted(rooms[name].imports)]
            found[name] = max(below, default=-1) + 1
        return found[name]

    for name in sorted(rooms):
        level(name)
    return found


# --- where it goes ------------------------------------------------------------------------------------------


@dataclass
class Box:
    room: Package
    x: float
    width: float
    y: float = 0
    height: float = 0

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width


def wrap(name: str, docstring: str, width: float) -> list[str]:
    return textwrap.wrap(first_sentence(name, docstring), max(10, int(width / LETTER)))


def description(box: Box) -> list[str]:
    return wrap(box.room.title, box.room.docstring, box.width - 2 * PAD)


def grid(box: Box) -> list[list[tuple[str, list[str]]]]:
    """The inner boxes in rows: name and lines of text."""
    names = list(box.room.parts)
    if not names:
        return []
    across = min(INNER_COLUMNS, len(names), max(1, int(box.width // 180)))
    # Rows as equal as can be: four go two and two, not three and one.
    across = -(-len(names) // -(-len(names) // across))
    width = (box.width - 2 * PAD - (across - 1) * INNER_GAP) / across - 2 * PAD
    cells = [(name, wrap(name, box.room.parts[name], width)) for name in names]
    return [cells[at : at + across] for at in range(0, len(cells), across)]


def row_height(cells: list[tuple[str, list[str]]]) -> float:
    return PAD + TITLE + LINE * max(len(lines) for _, lines in cells) + PAD / 2


def height(box: Box) -> float:
    text = PAD + TITLE + LINE * len(description(box))
    return text + sum(row_height(cells) + INNER_GAP for cells in grid(box)) + PAD


def boxes(rooms: dict[str, Package]) -> dict[str, Box]:
    below = reached(SERVER, rooms) | {SERVER}
    level = levels(rooms)
    left, right = MARGIN, MARGIN + LEFT_WIDTH + GUTTER
    placed = {}
    for name, room in rooms.items():
        if SERVER in room.imports:
            placed[name] = Box(room, left, WIDTH - 2 * MARGIN)
        elif name in below:
            placed[name] = Box(room, left, LEFT_WIDTH)
        else:
            placed[name] = Box(room, right, WIDTH - MARGIN - right)
    y = float(MARGIN)
    for row in sorted(set(level.values()), reverse=True):
        here = [placed[name] for name in sorted(rooms) if level[name] == row]
        for x in sorted({box.x for box in here}):
            _side_by_side([box for box in here if box.x == x])
        for box in here:
            box.y = y
        y += max(box.height for box in here) + ROW_GAP
    return placed


def _side_by_side(row: list[Box]) -> None:
    """Boxes of one column in one row share its width, and are equally tall."""
    width = (row[0].width - (len(row) - 1) * GUTTER) / len(row)
    for at, box in enumerate(row):
        box.x, box.width = box.x + at * (width + GUTTER), width
    for box in row:
        box.height = max(height(each) for each in row)


# --- how it looks -------------------------------------------------------------------------------------------


def text(x: float, y: float, content: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{attribute}>{escape(content, quote=False)}</text>'


def rectangle(x: float, y: float, width: float, tall: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{tall:g}" rx="6" class="{kind}"/>'


def draw(box: Box) -> list[str]:
    drawn = [
        rectangle(box.x, box.y, box.width, box.height, "room"),
        text(box.x + PAD, box.y + PAD + 10, box.room.title, "name"),
    ]
    y = box.y + PAD + TITLE
    for line in description(box):
        y += LINE
        drawn.append(text(box.x + PAD, y - 3, line))
    for cells in grid(box):
        y += INNER_GAP
        width = (box.width - 2 * PAD - (len(grid(box)[0]) - 1) * INNER_GAP) / len(grid(box)[0])
        for at, (name, lines) in enumerate(cells):
            x = box.x + PAD + at * (width + INNER_GAP)
            drawn.append(rectangle(x, y, width, row_height(cells), "inner"))
            drawn.append(text(x + PAD, y + PAD + 8, name, "part"))
            drawn += [
                text(x + PAD, y + PAD + TITLE + LINE * number + 9, line) for number, line in enumerate(lines)
            ]
        y += row_height(cells)
    return drawn


def arrow(start: Box, end: Box) -> list[str]:
    """Straight down where nothing is in between, else through the gutter and in from the side."""
    if start.x < end.right and end.x < start.right:
        x = (max(start.x, end.x) + min(start.right, end.right)) / 2
        return [f'<path d="M{x:g} {start.bottom:g}V{end.y - 7:g}" class="arrow"/>', _tip(x, end.y)]
    x, y = start.x - GUTTER / 2, end.y + PAD + TITLE / 2
    return [
        f'<path d="M{start.x:g} {start.y + PAD + TITLE / 2:g}H{x:g}V{y:g}H{end.right + 7:g}" class="arrow"/>',
        f'<path d="M{end.right:g} {y:g}l8 -4v8z" class="tip"/>',
    ]


def _tip(x: float, y: float) -> str:
    return f'<path d="M{x:g} {y:g}l-4 -8h8z" class="tip"/>'


def picture() -> str:
    rooms = packages()
    placed = boxes(rooms)
    tall = max(box.bottom for box in placed.values()) + MARGIN
    size = f'viewBox="0 0 {WIDTH} {tall:g}" width="{WIDTH}" height="{tall:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<!-- Made by scripts/architecture.py from the packages under src. Do not edit. -->",
        "<title>The packages of topics, and which of them imports which</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{tall:g}" class="page"/>',
    ]
    for start, end in arrows(rooms):
        lines += arrow(placed[start], placed[end])
    for name in sorted(placed):
        lines += draw(placed[name])
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="Draws docs/images/architecture.svg from the packages.")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    made = picture()
    if not parser.parse_args().check:
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(made)
    elif not PICTURE.exists() or PICTURE.read_text() != made:
        print(f"{PICTURE.relative_to(ROOT)} is not what the packages are: run scripts/architecture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
