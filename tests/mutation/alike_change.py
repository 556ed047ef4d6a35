"""A change of the code that makes no difference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alike:
    """`old` occurs once in the file `path` under src/topics; `new` instead makes no difference."""

    path: str
    old: str
    new: str
    why: str
