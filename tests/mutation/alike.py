"""Changes that a survey would make and that make no difference, each with the reason why no test can notice.

What belongs here is another program that does the same: a boundary where both sides agree, a way around work
that comes to the same end. What merely has no test does not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alike:
    """`old` occurs once in the file `path` under src/topics; `new` instead makes no difference."""

    path: str
    old: str
    new: str
    why: str


_COUNTED = "the other way counts sizes, and finds the same rows"

ALIKE: tuple[Alike, ...] = (
    Alike(
        "log/read/audit.py",
        "if h[1] > after]",
        "if h[1] >= after]",
        "what is left of a hole that ends there is empty, and a ledger passes over empty ranges",
    ),
    Alike(
        "log/read/page.py",
        "if position < stop_before - 1:",
        "if position <= stop_before - 1:",
        "a walk over nothing leaves the cursor where it is",
    ),
    Alike("log/read/page.py", "if found is not None:", "if False:", _COUNTED),
    Alike("log/read/page.py", "if last_byte - first_byte <= self.budget:", "if False:", _COUNTED),
    Alike(
        "log/read/page.py",
        "if last_byte - first_byte <= self.budget:",
        "if last_byte - first_byte < self.budget:",
        _COUNTED,
    ),
    Alike(
        "log/read/page.py",
        "if columns.start_of(examined) - columns.start_of(start) <= self.budget:",
        "if False:",
        _COUNTED,
    ),
    Alike(
        "log/read/page.py",
        "columns.start_of(start) <= self.budget:",
        "columns.start_of(start) < self.budget:",
        _COUNTED,
    ),
    Alike(
        "log/read/render.py",
        "if shape.is_stored(columns):",
        "if False:",
        "what is cut and joined again is the stored row",
    ),
    Alike(
        "log/read/render.py",
        "if last - first + 1 == len(indexes):",
        "if False:",
        "one stretch is a case of several",
    ),
    Alike(
        "log/read/render.py",
        "data_end + len(META_KEY) < end:",
        "data_end + len(META_KEY) <= end:",
        "behind the data comes the end of the row, which is shorter than the key, or the key and a value",
    ),
    Alike(
        "log/read/scan.py",
        "if position < stop_before - 1:",
        "if position <= stop_before - 1:",
        "a walk over nothing leaves the position where it is",
    ),
    Alike(
        "log/read/scan.py",
        "if len(parts) == 1:",
        "if False:",
        "a table of one batch is that batch",
    ),
    Alike(
        "log/topic.py",
        "if position < run.start_position:",
        "if position <= run.start_position:",
        "a run that is listed as displaced without being so is looked at twice and taken once",
    ),
)


def reason(path: str, text: str, changed: str) -> str | None:
    """Why this change of a file makes no difference, if it is known to make none."""
    for one in ALIKE:
        if one.path == path and text.replace(one.old, one.new) == changed:
            return one.why
    return None
